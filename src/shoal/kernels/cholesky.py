"""Cholesky's decomposition with pivots, which ends when nothing is left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import float64, int64, types

from shoal.kernels.jit import given, kernel


@kernel(int64(given(float64, 2), float64, float64[:, ::1], int64[::1]))
def _pivoted(gram: np.ndarray, tolerance: float, out: np.ndarray, pivots: np.ndarray) -> int:
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
        row, pivots[steps] = out[steps], pivot
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


class Decomposed(NamedTuple):
    """A matrix of low rank, as the product of a thin one with itself."""

    lower: np.ndarray  # L [rank, n]
    pivots: np.ndarray  # [rank] int64: L is upper triangular in these columns

    def interpolation(self) -> np.ndarray:
        """T [rank, n]: row i of what was decomposed is the sum of the pivots' rows, times T[:, i]."""
        found = np.empty_like(self.lower)
        _solve_upper(np.ascontiguousarray(self.lower[:, self.pivots]), self.lower, found)
        return found


def pivoted(gram: np.ndarray, most: int, tolerance: float) -> Decomposed | None:
    """L [rank, n] with L^T L = gram [n, n] but for `tolerance` of its trace; None if its rank would be above
    `most`. The largest of what is left comes first."""
    out, pivots = np.empty((most, len(gram))), np.empty(most, np.int64)
    rank = _pivoted(gram, tolerance, out, pivots)
    return None if rank < 0 else Decomposed(out[:rank], pivots[:rank])


@kernel(types.void(given(float64, 2), given(float64, 2), float64[:, ::1]))
def _solve_upper(upper: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    """upper @ out = right."""
    for i in range(len(upper) - 1, -1, -1):
        row = out[i]
        for p in range(row.size):
            row[p] = right[i, p]
        for j in range(i + 1, len(upper)):
            factor, other = upper[i, j], out[j]
            for p in range(row.size):
                row[p] -= factor * other[p]
        for p in range(row.size):
            row[p] /= upper[i, i]
