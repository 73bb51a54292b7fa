"""Checks on a reply before the method uses it.

A reply passes if it comes from a member of the cohort, for this exchange, for the first time; if its number
of samples is the one that the client declared; if its payload has the expected fields, names, shapes and
dtypes; and if its numbers are finite, and small enough to be squared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shoal.core.engine import Delivery
from shoal.core.flat import NAMED, Flat, is_part, vectors
from shoal.core.method import Method, overridden
from shoal.core.serialization import nbytes
from shoal.core.task import Task
from shoal.core.tree import leaves
from shoal.core.types import PerClient, Reply, Tree, Version, message_for
from shoal.kernels.fold import all_within

LARGEST_FIELD = 2**28  # bytes of a field without a template


class Like(NamedTuple):
    """The template of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    finite: bool = True  # False: `fold` checks its numbers itself
    minimum: float = -math.inf  # smallest number allowed


class Some(NamedTuple):
    """Any subset of these tensors, and no others."""

    of: Mapping[str, Tree]


class Gate:
    """The checks on the replies of one exchange."""

    def __init__(self, method: Method, task: Task, samples: Mapping[int, int], version: Version) -> None:
        self._method, self._task, self._samples, self._version = method, task, samples, version
        self._ids, self._seen = tuple(samples), set[int]()
        self._opens = overridden(method, Method, "received")
        self._sent: Tree = None  # the last message, and the templates for replies to it
        self._templates: Mapping[str, Tree] = {}

    def known(self, client: int, version: Version) -> str:
        """Why a reply of this sender is refused; empty if it is not."""
        if client not in self._samples:
            return "it is not in this cohort"
        if version != self._version:
            return f"it answers round {version[0] + 1}, leg {version[1] + 1}, not this one"
        if client in self._seen:
            return "it has answered already"
        self._seen.add(client)
        return ""

    def opened(
        self, client: int, sent: Tree, reply: Reply, checked: tuple[Tree, ...] = ()
    ) -> tuple[Reply, str]:
        """The reply as the method sees it, and why it is refused (empty if it is not).

        The numbers of payload fields in `checked` are not checked again.
        """
        expected = self._expected(sent)
        try:
            reason = envelope(reply, self._samples[client])
            if not reason and self._opens:
                reply = self._method.received(reply, sent)
            return reply, reason or contents(sent, reply, expected, checked=checked)
        except Exception as error:  # replies are untrusted: any error is the reply's fault
            return reply, f"it cannot be read: {type(error).__name__}: {error}"

    def _expected(self, sent: Tree) -> Mapping[str, Tree]:
        if sent is not self._sent:
            self._sent, self._templates = sent, self._method.expects(self._task, sent)
        return self._templates

    def block(self, delivery: Delivery) -> bool:
        """Whether all stacked replies of a block pass together; if not, check them one by one."""
        clients, reply = delivery.clients, delivery.reply
        if not delivery.stacked or delivery.reason or reply is None or self._opens:
            return False
        if delivery.version != self._version or not self._new(clients):
            return False
        weights = None if reply.weight is None else reply.weight.tolist()
        declared = list(map(self._samples.__getitem__, clients))
        if weights is not None and (weights != declared or 0 in weights):
            return False
        if not _are_rows(reply.metrics, len(clients)):
            return False
        sent = message_for(delivery.sent, 0)
        if contents(sent, reply, self._expected(sent), len(clients), checked=delivery.checked):
            return False
        self._seen.update(clients)
        return True

    def _new(self, clients: tuple[int, ...]) -> bool:
        """Whether all clients are in the cohort, and none has replied yet."""
        if clients == self._ids and not self._seen:  # the whole cohort in one block
            return True
        named = set(clients)
        return len(named) == len(clients) and named <= self._samples.keys() and named.isdisjoint(self._seen)


def contents(
    sent: Tree,
    reply: Reply,
    expected: Mapping[str, Tree],
    clients: int = 0,
    *,
    checked: tuple[Tree, ...] = (),
) -> str:
    """Why a payload is refused; empty if it is not. `clients` is the size of a block, 0 for a single reply.

    The numbers of fields in `checked` are known to be finite and are not checked again.
    """
    payload = reply.payload
    names = getattr(payload, "_fields", ())
    for name in expected:
        if name not in names:
            return f"its payload has no {name}"
    if reply.weight is None and "update" in expected:
        return "it does not say how many samples it is based on"
    if not names:
        return unknown(payload)
    wanted = {**({"update": sent.model} if "model" in getattr(sent, "_fields", ()) else {}), **expected}
    for name, value in zip(names, payload, strict=True):
        look = not any(value is known for known in checked)
        if not (clients and isinstance(value, PerClient)):  # a single reply has none
            reason = _against(wanted, name, value, clients, look)
        elif len(value.rows) != clients:
            reason = f"{name} has {len(value.rows)} rows for {clients} clients"
        else:  # rows are computed on access; those of a field in `checked` are the solver's own
            reasons = (_against(wanted, name, row) for row in value.rows)
            reason = next(filter(None, reasons), "") if look else ""
        if reason:
            return reason
    return ""


def _against(wanted: Mapping[str, Tree], name: str, value: Tree, clients: int = 0, look: bool = True) -> str:
    return mismatch(value, wanted[name], name, clients, look) if name in wanted else unknown(value)


def envelope(reply: Any, samples: int) -> str:
    """Why a reply is refused for something other than its payload; empty if it is not."""
    if not isinstance(reply, Reply):
        return "it is not a reply"
    if reply.weight is not None:
        weight = _scalar(reply.weight)
        if weight is None:
            return "its number of samples is not a number"
        if weight != samples:
            return f"it claims {weight:g} samples but has declared {samples}"
        if samples <= 0:
            return "it has no samples"
    if not isinstance(reply.metrics, dict) or not all(isinstance(name, str) for name in reply.metrics):
        return "its metrics have no names"
    for name, value in reply.metrics.items():
        if _scalar(value) is None:
            return f"its metric {name} is not a number"
    return ""


def _are_rows(metrics: Any, clients: int) -> bool:
    """Whether these are valid metrics of a block: for each name, one number per client."""
    return isinstance(metrics, dict) and all(
        isinstance(name, str)
        and isinstance(value, Tensor)
        and value.shape == (clients,)
        and not value.is_complex()
        for name, value in metrics.items()
    )


def _scalar(value: Any) -> float | None:
    if isinstance(value, Tensor):
        return float(value) if value.dim() == 0 and not value.is_complex() else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def mismatch(found: Tree, wanted: Tree, name: str, clients: int = 0, look: bool = True) -> str:
    """How a tree differs from its template; empty if it does not."""
    whole = _in_one_vector(found, wanted)
    if whole and not _tensor(*whole, look, -math.inf, name, clients):
        return ""
    if isinstance(wanted, Tensor):
        return _tensor(found, wanted.shape, wanted.dtype, look, -math.inf, name, clients)
    if isinstance(wanted, Like):
        return _tensor(found, *wanted, name, clients)
    partial = isinstance(wanted, Some)
    names = wanted.of if isinstance(wanted, Some) else wanted
    if isinstance(names, NAMED):
        if not isinstance(found, NAMED):
            return f"its {name} is a {type(found).__name__}, not a dict of tensors"
        lacking = [key for key in names if key not in found and not partial]
        strange = [key for key in found if key not in names]
        if lacking or strange:
            return f"its {name} lacks {lacking[0]}" if lacking else f"its {name} has an extra {strange[0]}"
        pairs = [(found[key], names[key], f"{name}.{key}") for key in found]
    else:
        if type(found) is not type(wanted) or len(found) != len(wanted):
            return f"its {name} is a {type(found).__name__}, not a {type(wanted).__name__}"
        labels = getattr(wanted, "_fields", range(len(wanted)))
        pairs = [(f, w, f"{name}.{label}") for f, w, label in zip(found, wanted, labels, strict=True)]
    for one, other, path in pairs:
        reason = mismatch(one, other, path, clients, look)
        if reason:
            return reason
    return ""


def _in_one_vector(found: Tree, wanted: Tree) -> tuple[Tensor, tuple[int, ...], torch.dtype] | None:
    """`found` as one vector, and the shape and dtype it should have; None: check tensor by tensor."""
    whole = vectors(found, wanted)
    if whole:
        return whole[0], whole[1].shape, whole[1].dtype
    like = wanted.of if isinstance(wanted, Some) else None
    if type(found) is Flat and type(like) is Flat and is_part(found.layout, like.layout):
        return found.vector, (sum(found.layout.sizes),), like.vector.dtype
    return None


def _tensor(
    found: Any,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    finite: bool,
    minimum: float,
    name: str,
    clients: int,
) -> str:
    if not isinstance(found, Tensor):
        return f"its {name} is a {type(found).__name__}, not a tensor"
    shape = (clients, *shape) if clients else shape
    if found.shape != shape:
        return f"its {name} has the shape {tuple(found.shape)}, not {tuple(shape)}"
    if found.dtype != dtype:
        return f"its {name} is {_named(found.dtype)}, not {_named(dtype)}"
    if found.layout != torch.strided or found.is_meta:
        return f"its {name} is not a dense tensor"
    if minimum > -math.inf and found.numel() and float(found.min()) < minimum:
        return f"its {name} is below {minimum:g}"
    return magnitude(found) if finite and found.is_floating_point() else ""


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def magnitude(found: Tensor) -> str:
    """Why a floating-point tensor is refused (empty if not): numbers and their squares must be finite."""
    limit = math.sqrt(torch.finfo(found.dtype).max)
    if _within(found.detach(), limit):
        return ""
    if not bool(torch.isfinite(found).all()):
        return "its numbers are not finite"
    return f"its numbers are larger than {limit:.2g}"


def _within(found: Tensor, limit: float) -> bool:
    if not found.numel():
        return True
    if not found.is_contiguous():  # it may still be dense in another memory format, such as channels_last
        found = found.permute(sorted(range(found.dim()), key=found.stride, reverse=True))
    if found.is_contiguous() and found.dtype == torch.float32 and found.device.type == "cpu":
        return bool(all_within(found.reshape(-1).numpy(), limit))
    if found.dim() > 1 and found[0].is_contiguous():  # rows of a longer tensor
        return all(_within(row, limit) for row in found)
    minimum, most = torch.aminmax(found)
    return -limit <= float(minimum) and float(most) <= limit


def unknown(value: Tree) -> str:
    """Why a tree without a template is refused (empty if not): it may hold only plain finite numbers."""
    for leaf in leaves(value):
        if isinstance(leaf, Tensor):
            reason = magnitude(leaf) if leaf.is_floating_point() else ""
        elif leaf is None or isinstance(leaf, bool | int | float):
            reason = "" if leaf is None or math.isfinite(leaf) else "its numbers are not finite"
        else:
            reason = f"it holds a {type(leaf).__name__}, which is not a number"
        if reason:
            return reason
    size = nbytes(value)
    return f"it is too long: {size} bytes" if size > LARGEST_FIELD else ""
