"""Cholesky's decomposition with pivots, which ends when nothing is left."""

from __future__ import annotations

import numpy as np
from numba import float64, int64

from shoal.kernels.jit import given, kernel


@kernel(int64(given(float64, 2), float64, float64[:, ::1]))
def _pivoted(gram: np.ndarray, tolerance: float, out: np.ndarray) -> int:
    """See `pivoted`."""
    n, left = len(gram), np.empty(len(gram))
    trace = 0.0
    for i in range(n):
        left[i] = gram[i, i]
        trace += left[i]
    rest, steps = trace, 0
    while rest > tolerance * trace and steps < len(out):
        pivot = np.argmax(left)
        if not left[pivot] > 0:
            break
        row = out[steps]
        for i in range(n):
            row[i] = gram[pivot, i]
        for before in range(steps):
            factor, other = out[before, pivot], out[before]
            for i in range(n):
                row[i] -= factor * other[i]
        scale = 1 / np.sqrt(left[pivot])
        for i in range(n):
            row[i] *= scale
        for i in range(n):
            left[i] -= row[i] * row[i]
        left[pivot] = 0.0
        rest = 0.0
        for i in range(n):
            rest += max(left[i], 0.0)
        steps += 1
    return steps if rest <= tolerance * trace else -1


def pivoted(gram: np.ndarray, most: int, tolerance: float) -> np.ndarray | None:
    """L [rank, n] with L^T L = gram [n, n] but for `tolerance` of its trace; None if its rank would be above
    `most`. The largest of what is left comes first."""
    out = np.empty((most, len(gram)))
    rank = _pivoted(gram, tolerance, out)
    return None if rank < 0 else out[:rank]
