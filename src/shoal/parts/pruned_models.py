"""Models without some of their channels, and whole models with zeros in their place.

The smaller model lacks a removed channel's numbers in its own layer, in the next one and in a norm between
them. With zeros in their place the whole model computes the same, and training leaves them at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.flat import Flat, Layout, flat
from shoal.core.gate import Like
from shoal.core.types import Weights
from shoal.kernels.index_ranges import add_to_runs, put_runs, take_runs
from shoal.parts.channels import ALL, Kept, Pruning

WHOLE = Kept(ALL, ALL)
Marks = tuple[tuple[bytes, bytes], ...]  # for the rows and columns of each tensor in a vector; empty: all


def smaller(weights: Weights, pruning: Pruning) -> Weights:
    """The weights reduced to the remaining rows and columns."""
    if not pruning:
        return weights
    params = _plain(weights.params)
    buffers = _each(_left, weights.buffers, pruning)
    if params is None:
        return Weights(_each(_left, weights.params, pruning), buffers)
    runs = _runs(params.layout, _marks(params.layout, pruning))
    vector = torch.empty(runs.numbers)
    take_runs(vector.numpy(), params.vector.numpy(), runs.starts, runs.lengths)
    return Weights(runs.layout.tree(vector), buffers)


def enlarged(weights: Weights, pruning: Pruning) -> Weights:
    """The inverse of `smaller`, with zeros where rows and columns were removed."""
    if not pruning:
        return weights
    params = _plain(weights.params)
    buffers = _each(_placed, weights.buffers, pruning)
    if params is None:
        return Weights(_each(_placed, weights.params, pruning), buffers)
    marks = _marks(params.layout, pruning)
    whole = _whole_layout(params.layout, marks)
    runs, vector = _runs(whole, marks), torch.empty(sum(whole.sizes))
    put_runs(vector.numpy(), params.vector.numpy(), runs.starts, runs.lengths)
    return Weights(whole.tree(vector), buffers)


def add_where_held(totals: Mapping[str, Tensor], pruning: Pruning, number: float) -> None:
    """Add a number wherever a model with this pruning has a weight; `totals` are those of the whole model, in
    float64."""
    if isinstance(totals, Flat) and totals.vector.device.type == "cpu":
        runs = _runs(totals.layout, _marks(totals.layout, pruning))
        add_to_runs(totals.vector.numpy(), number, runs.starts, runs.lengths)
        return
    for name, value in totals.items():
        kept = pruning.get(name, WHOLE)
        value.add_(_placed(torch.ones_like(_left(value, kept)), kept), alpha=number)


def whole_shapes(weights: Weights, pruning: Pruning) -> Weights:
    """The template of the result of `enlarged`."""
    params = _plain(weights.params)
    buffers = _each(_template, weights.buffers, pruning)
    if params is None:
        return Weights(_each(_template, weights.params, pruning), buffers)
    whole = _whole_layout(params.layout, _marks(params.layout, pruning))
    return Weights(whole.tree(torch.zeros(1).expand(sum(whole.sizes))), buffers)


def _each(
    work: Callable[[Tensor, Kept], Any], values: Mapping[str, Tensor], pruning: Pruning
) -> dict[str, Any]:
    return {name: work(value, pruning.get(name, WHOLE)) for name, value in values.items()}


# ---- one tensor


def _left(value: Tensor, kept: Kept) -> Tensor:
    for axis, marks in enumerate(kept):
        value = value.index_select(axis, _marked(marks, value)) if len(marks) else value
    return value


def _placed(value: Tensor, kept: Kept) -> Tensor:
    for axis, marks in enumerate(kept):
        if len(marks):
            whole = value.new_zeros(_with_length(value.shape, axis, len(marks)))
            value = whole.index_copy_(axis, _marked(marks, value), value)
    return value


def _template(value: Tensor, kept: Kept) -> Like:
    shape = value.shape
    for axis, marks in enumerate(kept):
        shape = _with_length(shape, axis, len(marks)) if len(marks) else shape
    return Like(shape, value.dtype)


def _marked(marks: Tensor, value: Tensor) -> Tensor:
    return marks.nonzero().view(-1).to(value.device)


def _with_length(shape: torch.Size, axis: int, length: int) -> torch.Size:
    return torch.Size((*shape[:axis], length, *shape[axis + 1 :]))


# ---- all parameters in one vector


class _Runs(NamedTuple):
    """Where the numbers of a smaller model lie in the vector of the whole one: in runs of neighbours."""

    layout: Layout  # of the smaller model
    starts: np.ndarray  # [runs] int64
    lengths: np.ndarray  # [runs] int64
    numbers: int


def _plain(values: Mapping[str, Tensor]) -> Flat | None:
    """The tensors in one vector, if the kernels can read it."""
    together = flat(values)
    if not isinstance(together, Flat) or together.vector.dtype != torch.float32:
        return None
    if together.vector.device.type != "cpu" or together.vector.requires_grad:
        return None
    return together.layout.tree(together.vector.contiguous())


def _marks(layout: Layout, pruning: Pruning) -> Marks:
    return _read_marks(layout.names, tuple(pruning.items()))


@lru_cache(maxsize=32)  # compares tensors by identity, which is faster than reading them
def _read_marks(names: tuple[str, ...], pruning: tuple[tuple[str, Kept], ...]) -> Marks:
    found = dict(pruning)
    return tuple((_bytes(kept.rows), _bytes(kept.columns)) for kept in (found.get(n, WHOLE) for n in names))


def _bytes(marks: Tensor) -> bytes:
    return marks.cpu().numpy().tobytes()


@lru_cache(maxsize=32)  # the clients of a round have few different layouts
def _whole_layout(small: Layout, marks: Marks) -> Layout:
    shapes = []
    for shape, both in zip(small.shapes, marks, strict=True):
        for axis, some in enumerate(both):
            shape = _with_length(shape, axis, len(some)) if some else shape
        shapes.append(shape)
    return Layout(small.names, tuple(shapes))


@lru_cache(maxsize=32)
def _runs(whole: Layout, marks: Marks) -> _Runs:
    shapes, starts, lengths = [], [], []
    for (_, shape, _, first), both in zip(whole.places, marks, strict=True):
        here, counts = _tensor_runs(shape, *both)
        starts.append(first + here)
        lengths.append(counts)
        for axis, some in enumerate(both):
            shape = _with_length(shape, axis, some.count(1)) if some else shape
        shapes.append(shape)
    small = Layout(whole.names, tuple(shapes))
    return _Runs(small, np.concatenate(starts), np.concatenate(lengths), sum(small.sizes))


def _tensor_runs(shape: torch.Size, rows: bytes, columns: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Starts and lengths of the remaining runs of one tensor."""
    width = shape[1:].numel()
    if not columns:
        return _neighbours(rows or b"\1", width if rows else shape.numel())
    starts, lengths = _neighbours(columns, shape[2:].numel())
    left = np.flatnonzero(np.frombuffer(rows, np.uint8)) if rows else np.arange(shape[0])
    return (width * left[:, None] + starts).reshape(-1), np.tile(lengths, len(left))


def _neighbours(marks: bytes, unit: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and lengths of the runs of ones, each of which stands for `unit` numbers."""
    edges = np.flatnonzero(np.diff(np.frombuffer(b"\0" + marks + b"\0", np.uint8)))
    return unit * edges[::2], unit * (edges[1::2] - edges[::2])
