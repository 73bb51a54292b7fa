"""Local training by the compiled kernels: small dense models, one client or a block of them.

A client's arithmetic is the same alone and in a block, so a block has the bits of one client after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from shoal.core.data import Data
from shoal.core.task import Task
from shoal.core.types import Weights
from shoal.kernels import dense
from shoal.parts.descent import Rule, Trained
from shoal.parts.terms import Proximal, Term

LARGEST_MODEL = 2_000_000  # parameters; layers of several megabytes are torch's


def fits(task: Task, terms: tuple[Term, ...]) -> bool:
    """Whether the kernels know the model, and all that is added to its loss."""
    known = all(isinstance(term, Proximal) for term in terms) and len(terms) <= 1
    return task.dense is not None and task.dense.params <= LARGEST_MODEL and known


def train(
    rule: Rule,
    task: Task,
    start: Weights,
    data: Data,
    terms: tuple[Term, ...],
    shift: Mapping[str, Tensor] | None,
) -> Trained:
    """Train one client, or the clients of a block, each from its own start or all from the same."""
    assert task.dense is not None
    clients = len(data.counts)
    begin = _flat(start.params, task)
    out, losses = torch.empty(clients, begin.shape[1]), np.empty(clients)
    change = torch.empty(out.numel())
    dense.train(
        task.dense,
        begin.numpy(),
        out.numpy(),
        change.numpy(),
        data.x.reshape(len(data.x), -1).numpy(),
        data.y.numpy(),
        data.rows[data.plan.order],
        data.plan.step_ptr,
        data.plan.client_ptr,
        np.full(clients, rule.rate, np.float32),
        losses,
        momentum=rule.momentum,
        weight_decay=rule.weight_decay,
        mu=sum(term.mu for term in terms if isinstance(term, Proximal)),
        shift=None if shift is None else _flat(shift, task).numpy(),
        spread=partial(in_threads, data.counts, data.threads),
    )
    steps = torch.from_numpy(np.diff(data.plan.client_ptr))
    loss = torch.from_numpy(losses).float()
    weights = Weights(_unflat(out, task, data.stacked), start.buffers)
    changed = Weights(_unflat_rows(change, task, data.stacked), {})
    if not data.stacked:
        return Trained(weights, int(steps[0]), loss[0], change=changed)
    return Trained(weights, steps, loss, change=changed)


def in_threads(counts: np.ndarray, threads: int, some: dense.Some, clients: int) -> None:
    """Clients in as many ranges of about equal work as there are threads; counts are their samples."""
    threads = min(threads, clients)
    if threads == 1:
        some(0, clients)
        return
    work = np.cumsum(counts)
    bounds = [0, *np.searchsorted(work, work[-1] * np.arange(1, threads) / threads).tolist(), clients]
    ranges = [(first, last) for first, last in pairwise(bounds) if first < last]
    rest = [_pool(threads).submit(some, first, last) for first, last in ranges[1:]]
    some(*ranges[0])
    for future in rest:
        future.result()


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="shoal")


def _flat(values: Mapping[str, Tensor], task: Task) -> Tensor:
    """[1 or clients, parameters]: the tensors side by side, in the model's order."""
    shapes = task.shapes
    stacked = next(iter(values.values())).dim() > len(next(iter(shapes.values())))
    rows = [values[name].reshape(values[name].shape[0] if stacked else 1, -1) for name in shapes]
    return torch.cat(rows, 1)


def _unflat(flat: Tensor, task: Task, stacked: bool) -> dict[str, Tensor]:
    """The tensors by name, as views; without a client axis for one client."""
    pieces = torch.split(flat, [shape.numel() for shape in task.shapes.values()], 1)
    return {
        name: _shaped(piece, shape, stacked)
        for (name, shape), piece in zip(task.shapes.items(), pieces, strict=True)
    }


def _unflat_rows(rows: Tensor, task: Task, stacked: bool) -> dict[str, Tensor]:
    """The tensors by name, from all clients' rows for the first, then those for the second, and so on."""
    clients = rows.numel() // task.dense.params if task.dense else 1
    pieces = torch.split(rows, [clients * shape.numel() for shape in task.shapes.values()])
    return {
        name: piece.view(clients, *shape) if stacked else piece.view(shape)
        for (name, shape), piece in zip(task.shapes.items(), pieces, strict=True)
    }


def _shaped(flat: Tensor, shape: torch.Size, stacked: bool) -> Tensor:
    return flat.reshape(len(flat), *shape) if stacked else flat.reshape(shape)
