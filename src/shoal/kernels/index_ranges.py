"""Some numbers of a vector, given as runs of adjacent ones: taken out of it, and put back."""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int64, types

from shoal.kernels.jit import Index, given, inner, kernel

_RUNS = given(int64, 1)


@inner
def _fits(vector: Index, some: Index, starts: np.ndarray, lengths: np.ndarray) -> bool:
    """Whether the runs are ascending, lie inside the vector and contain `some` numbers altogether."""
    at, end = np.int64(0), np.int64(0)
    if starts.size != lengths.size:
        return False
    for run in range(starts.size):
        if starts[run] < end or lengths[run] < 0:
            return False
        at, end = at + lengths[run], starts[run] + lengths[run]
    return bool(at == some and end <= vector)


@kernel(types.void(float32[::1], given(float32, 1), _RUNS, _RUNS))
def take_runs(out: np.ndarray, vector: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> None:
    """out = the runs of the vector, one after another; run k begins at starts[k]."""
    if not _fits(vector.size, out.size, starts, lengths):
        raise ValueError("the runs do not fit the vector, or what is taken of it")
    at = 0
    for run in range(starts.size):
        first, count = starts[run], lengths[run]
        source, target = vector[first : first + count], out[at : at + count]
        for p in range(count):
            target[p] = source[p]
        at += count


@kernel(types.void(float32[::1], given(float32, 1), _RUNS, _RUNS))
def put_runs(out: np.ndarray, values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> None:
    """The inverse of `take_runs`: the values in the runs of `out`, and zeros between them."""
    if not _fits(out.size, values.size, starts, lengths):
        raise ValueError("the runs do not fit the vector, or what is put into it")
    at, end = 0, 0
    for run in range(starts.size):
        first, count = starts[run], lengths[run]
        source, target, gap = values[at : at + count], out[first : first + count], out[end:first]
        for p in range(gap.size):
            gap[p] = 0.0
        for p in range(count):
            target[p] = source[p]
        at, end = at + count, first + count
    rest = out[end:]
    for p in range(rest.size):
        rest[p] = 0.0


@kernel(types.void(float64[::1], float64, _RUNS, _RUNS))
def add_to_runs(total: np.ndarray, number: float, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Add a number to everything in the runs."""
    if not _fits(total.size, lengths.sum(), starts, lengths):
        raise ValueError("the runs do not fit the vector")
    for run in range(starts.size):
        some = total[starts[run] : starts[run] + lengths[run]]
        for p in range(some.size):
            some[p] += number
