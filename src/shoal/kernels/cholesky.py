"""The pivoted Cholesky decomposition, which stops when the remainder is negligible."""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int64, types

from shoal.kernels.jit import given, inner, kernel
from shoal.kernels.row_sums import subtract_rows


@inner
def _taken(left: np.ndarray, row: np.ndarray, pivot: np.intp) -> float:
    """Subtract a row's squares from the remaining diagonal, which becomes 0 at the pivot; returns its sum."""
    for i in range(left.size):
        left[i] -= row[i] * row[i]
    left[pivot] = 0.0
    rest = 0.0
    for i in range(left.size):
        rest += max(left[i], 0.0)
    return rest


@kernel(int64(given(float64, 2), float64, float64[:, ::1], int64[::1]))
def pivoted_rows(gram: np.ndarray, tolerance: float, out: np.ndarray, pivots: np.ndarray) -> int:
    """See `pivoted`; fills one row and one pivot for each rank. Returns the rank, -1 if there is no room."""
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
        subtract_rows(row, out[:steps, pivot], out)
        scale = 1 / np.sqrt(left[pivot])
        for i in range(n):
            row[i] *= scale
        rest = _taken(left, row, pivot)
        steps += 1
    return steps if rest <= tolerance * trace else -1


def pivoted(gram: np.ndarray, most: int, tolerance: float) -> np.ndarray | None:
    """L [rank, n] with L^T L = gram [n, n] up to `tolerance` of its trace; None if its rank would be above
    `most`. Each pivot is the largest number that remains on the diagonal."""
    out = np.empty((most, len(gram)))
    rank = pivoted_rows(gram, tolerance, out, np.empty(most, np.int64))
    return None if rank < 0 else out[:rank]


@kernel(int64(given(float32, 2), float64, float64[:, ::1], int64[::1]))
def spanning(vectors: np.ndarray, tolerance: float, out: np.ndarray, pivots: np.ndarray) -> int:
    """`pivoted_rows` of the inner products of vectors, which are the columns of a matrix [width, n].

    Only the inner products with pivots are computed; the others are not needed. Row k of L holds the products
    of all vectors with the k-th direction: the part of pivot k that is orthogonal to the previous directions,
    scaled to length 1.
    """
    n, directions = vectors.shape[1], np.empty((len(out), len(vectors)))
    left = np.zeros(n)
    for line in vectors:
        for i in range(n):
            left[i] += np.float64(line[i]) * np.float64(line[i])
    trace = rest = left.sum()
    steps = 0
    while rest > tolerance * trace and steps < len(out):
        pivot = np.argmax(left)
        if not left[pivot] > 0:
            break
        row, direction, pivots[steps] = out[steps], directions[steps], pivot
        for c in range(direction.size):
            direction[c] = vectors[c, pivot]
        subtract_rows(direction, out[:steps, pivot], directions)
        direction *= 1 / np.sqrt(left[pivot])
        row[:] = 0.0
        subtract_rows(row, -direction, vectors)
        rest = _taken(left, row, pivot)
        steps += 1
    return steps if rest <= tolerance * trace else -1


@kernel(types.void(given(float64, 2), given(int64, 1), float64[:, ::1]))
def interpolate(lower: np.ndarray, pivots: np.ndarray, out: np.ndarray) -> None:
    """T [rank, n], from L: column i of the decomposed matrix is the sum of the pivots' columns times T[:, i].

    L is upper triangular in the columns of the pivots.
    """
    upper = lower[:, pivots]
    for i in range(len(upper) - 1, -1, -1):
        row = out[i]
        for p in range(row.size):
            row[p] = lower[i, p]
        subtract_rows(row, upper[i, i + 1 :], out[i + 1 :])
        for p in range(row.size):
            row[p] /= upper[i, i]
