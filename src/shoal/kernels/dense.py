"""Local training of multilayer perceptrons, many clients in one call, without a gradient in memory.

A client is trained in a padded copy of its parameters that stays in the processor's cache. In the backward
pass a band of rows of a weight matrix first hands the error down to the layer below and is then updated
where it stands. Clients are trained one after another and share nothing but memory, so a client's bits do
not depend on the others in the call.

numba notices changes of this file only: after a change of a module that it imports, touch it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numba import boolean, float32, float64, int64
from torch import nn

from shoal.kernels.jit import given, kernel
from shoal.kernels.layout import copy, make_net, make_work, pack, unpack
from shoal.kernels.losses import CROSS_ENTROPY, ONE_VERSUS_ALL, SQUARED_ERROR, batch_loss
from shoal.kernels.passes import StepRule, backward, forward

LOSS_CODES = {
    "cross_entropy": CROSS_ENTROPY,
    "one_versus_all": ONE_VERSUS_ALL,
    "squared_error": SQUARED_ERROR,
}


class DensePlan(NamedTuple):
    """A multilayer perceptron: linear layers with biases, and ReLU between them."""

    sizes: tuple[int, ...]  # of the input, of each layer's output
    loss: int  # one of LOSS_CODES

    @property
    def params(self) -> int:
        """How many parameters there are. Laid out: W1 [out, in], b1, W2, b2, ..."""
        return sum(out * (into + 1) for into, out in zip(self.sizes, self.sizes[1:]))


def plan_of(module: nn.Module, shape: Sequence[int], loss: str) -> DensePlan | None:
    """The plan that computes what `module` does with samples of this shape; None where there is none."""
    layers = list(_layers(module))
    if layers and type(layers[0]) is nn.Flatten and (layers[0].start_dim, layers[0].end_dim) == (1, -1):
        del layers[0]
    elif len(shape) != 1:
        return None
    linears = [layer for layer in layers[::2] if type(layer) is nn.Linear]
    between = [layer for layer in layers[1::2] if type(layer) is nn.ReLU]
    if len(linears) + len(between) < len(layers) or len(linears) != len(between) + 1:
        return None
    sizes = (math.prod(shape), *(layer.out_features for layer in linears))
    fits = all(layer.in_features == size for layer, size in zip(linears, sizes)) and min(sizes) > 0
    if not fits or loss not in LOSS_CODES or not _usual(module, len(linears)):
        return None
    return DensePlan(sizes, LOSS_CODES[loss])


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of nested `nn.Sequential`s, in order."""
    if type(module) is nn.Sequential:
        for child in module:
            yield from _layers(child)
    elif type(module) is not nn.Identity:
        yield module


def _usual(module: nn.Module, linears: int) -> bool:
    """Whether every linear layer has a weight and a bias of its own to train, and nothing listens in."""
    values = list(module.parameters())  # each once, however many layers share it
    return (
        len(values) == 2 * linears
        and all(value.dtype is torch.float32 and value.requires_grad for value in values)
        and not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    )


_SIGNATURE = int64(
    int64, int64, given(int64, 1), int64,  # first, last, sizes, loss
    given(float32, 2), float32[:, ::1], float32[:, ::1],  # start, out, change
    given(float32, 2), given(int64, 1), given(float32, 1),  # x, labels, targets
    given(int64, 1), given(int64, 1), given(int64, 1),  # index, step_ptr, client_ptr
    given(float32, 1), float64, float64, float64, given(float32, 2),  # lr, momentum, decay, mu, shift
    float64[::1], boolean[::1],  # losses, sound
)  # fmt: skip


@kernel(_SIGNATURE)
def _train(
    first: int, last: int, sizes: np.ndarray, loss: int, start: np.ndarray, out: np.ndarray,
    change: np.ndarray, x: np.ndarray, labels: np.ndarray, targets: np.ndarray, index: np.ndarray,
    step_ptr: np.ndarray, client_ptr: np.ndarray, lr: np.ndarray, momentum: float, weight_decay: float,
    mu: float, shift: np.ndarray, losses: np.ndarray, sound: np.ndarray,
) -> int:  # fmt: skip
    """See `train`. Returns 0, or 1 + the first step without samples or with one that x does not have."""
    batch = np.int64(1)
    for step in range(client_ptr[first], client_ptr[last]):
        batch = max(batch, step_ptr[step + 1] - step_ptr[step])
    net = make_net(sizes, batch)
    work = make_work(net, batch, momentum != 0.0)
    top, heads, stride = net.values[-1], sizes[-1], net.strides[-1]
    for client in range(first, last):
        origin = start[client if start.shape[0] > 1 else 0]
        extra = shift[client] if shift.shape[0] else origin
        shifted = shift.shape[0] > 0 and np.any(extra)  # zeros are no shift
        rule = StepRule(lr[client], np.float32(momentum), np.float32(weight_decay), np.float32(mu), shifted)
        pack(net, origin, work.params)
        begin, end = client_ptr[client], client_ptr[client + 1]
        total = 0.0
        for step in range(begin, end):
            rows = index[step_ptr[step] : step_ptr[step + 1]]
            if rows.size == 0:
                return step + 1
            for b in range(rows.size):
                if not 0 <= rows[b] < x.shape[0]:
                    return step + 1
                copy(work.values, b * net.strides[0], x[rows[b]], np.int64(0), sizes[0])
            forward(net, work, rows.size)
            total += batch_loss(loss, work.values, heads, stride, labels, targets, rows, work.slopes, top)
            backward(net, work, rows.size, rule, step == begin, origin, extra)
        sound[client] = unpack(net, work.params, origin, out[client], change[client])
        losses[client] = total / max(end - begin, 1)
    return 0


Some = Callable[[int, int], None]  # trains the clients from the first number up to before the second
Spread = Callable[[Some, int], None]  # calls it so that all of so many clients are trained


def _at_once(some: Some, clients: int) -> None:
    some(0, clients)


_NO_LABELS, _NO_TARGETS = np.empty(0, np.int64), np.empty(0, np.float32)
_NO_SHIFT = np.empty((0, 0), np.float32)


def train(
    plan: DensePlan,
    start: np.ndarray,
    out: np.ndarray,
    change: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    index: np.ndarray,
    step_ptr: np.ndarray,
    client_ptr: np.ndarray,
    lr: np.ndarray,
    losses: np.ndarray,
    *,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    mu: float = 0.0,
    shift: np.ndarray | None = None,
    spread: Spread = _at_once,
) -> np.ndarray:
    """Train C clients by stochastic gradient descent. Returns [C] bool: whether each change can be squared.

    A step of a client: `g = dloss + mu*(w - w_start) + weight_decay*w + shift`, `v = momentum*v + g` (`v = g`
    in the first step), `w -= lr*v`.

    Args:
        plan: The model and its loss.
        start: [C or 1, P] float32, what each client (or every client) starts from.
        out: [C, P] float32, where the trained parameters go.
        change: [C, P] float32, where the trained parameters less those of the start go.
        x: [N, D] float32, the samples of all clients.
        y: [N] int64 labels, or float32 targets for the squared error.
        index: [T] int64, the rows of x for all steps of all clients, one after another.
        step_ptr: [S + 1] int64, where in `index` each step begins.
        client_ptr: [C + 1] int64, where in `step_ptr` each client begins.
        lr: [C] float32.
        losses: [C] float64, the mean over a client's steps of the loss before each update goes here.
        momentum: As in torch.
        weight_decay: As in torch.
        mu: Weight of the proximal term.
        shift: [C, P] float32, added to every gradient.
        spread: Goes through the clients; disjoint ranges of them may run in threads of their own.
    """
    shift = _NO_SHIFT if shift is None else shift
    labels, targets = (_NO_LABELS, y) if plan.loss == SQUARED_ERROR else (y, _NO_TARGETS)
    clients, params = len(out), plan.params
    _check("start", start, (1 if len(start) == 1 else clients, params))
    _check("out", out, (clients, params))
    _check("change", change, (clients, params))
    _check("x", x, (len(y), plan.sizes[0]))
    _check("lr", lr, (clients,))
    _check("losses", losses, (clients,))
    sound = np.zeros(clients, np.bool_)
    _check("shift", shift, (clients, params) if len(shift) else (0, 0))
    _check_pointers("client_ptr", client_ptr, clients, len(step_ptr) - 1)
    _check_pointers("step_ptr", step_ptr, len(step_ptr) - 1, len(index))
    sizes = np.array(plan.sizes, np.int64)

    def some(first: int, last: int) -> None:
        if not 0 <= first <= last <= clients:
            raise ValueError(f"clients {first} to {last} are not among {clients}")
        bad = _train(
            first, last, sizes, plan.loss, start, out, change, x, labels, targets,
            index, step_ptr, client_ptr, lr, momentum, weight_decay, mu, shift, losses, sound,
        )  # fmt: skip
        if bad:
            raise ValueError(
                f"step {bad - 1} has no samples, or samples that are not among the {len(x)} of x"
            )

    spread(some, clients)
    return sound


def _check(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Kernels look at no bounds."""
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {array.shape}")


def _check_pointers(name: str, pointers: np.ndarray, count: int, end: int) -> None:
    """`count` stretches, one after another, of `end` things."""
    _check(name, pointers, (count + 1,))
    if pointers[0] < 0 or pointers[-1] > end or (pointers[1:] < pointers[:-1]).any():
        raise ValueError(f"{name} must go up from at least 0 to at most {end}, got {pointers}")
