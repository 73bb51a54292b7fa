"""Steps of a model: their lengths, and how much of the model they move."""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int64, types

from shoal.kernels.jit import given, kernel


@kernel(types.void(float32[::1], given(float32, 1), given(float64, 1), float64))
def advance(out: np.ndarray, now: np.ndarray, step: np.ndarray, divisor: float) -> None:
    """out[p] = now[p] + step[p] / divisor, in float64 and rounded once."""
    if now.size != out.size or step.size != out.size:
        raise ValueError("out, now and step must have as many numbers")
    for p in range(out.size):
        out[p] = np.float64(now[p]) + step[p] / divisor


@kernel(float64[::1](given(float32, 1), given(float32, 1), given(float32, 1)))
def turn(new: np.ndarray, now: np.ndarray, before: np.ndarray) -> np.ndarray:
    """[2]: the squared length of the step from `now` to `new`, and its product with the previous step."""
    if now.size != new.size or before.size != new.size:
        raise ValueError("new, now and before must have as many numbers")
    square, inner = 0.0, 0.0
    for p in range(new.size):
        here = np.float64(now[p])
        last = np.float64(new[p]) - here
        square += last * last
        inner += last * (here - np.float64(before[p]))
    return np.array([square, inner])


@kernel(types.void(int64[::1], given(float32, 1), given(float32, 1), given(int64, 1), float32))
def count_moved(
    counts: np.ndarray, before: np.ndarray, after: np.ndarray, ends: np.ndarray, by: float
) -> None:
    """counts[k] = how many of the numbers from ends[k] to ends[k + 1] have moved by more than `by`."""
    if after.size != before.size or ends.size != counts.size + 1 or ends[0] != 0 or ends[-1] != before.size:
        raise ValueError("before, after, ends and counts do not fit together")
    for k in range(counts.size):
        old, new, count = before[ends[k] : ends[k + 1]], after[ends[k] : ends[k + 1]], 0
        for p in range(old.size):
            count += abs(new[p] - old[p]) > by
        counts[k] = count
