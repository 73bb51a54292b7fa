"""Cholesky's decomposition with pivots, which ends when nothing is left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import float32, float64, int64, types

from shoal.kernels.jit import given, inner, kernel
from shoal.kernels.products import inner_products


@inner
def subtract_rows(total: np.ndarray, factors: np.ndarray, rows: np.ndarray) -> None:
    """total -= factors[k] * rows[k], one after another; four at a time, because otherwise most of the time
    goes into reading and writing the total."""
    whole = factors.size - factors.size % 4
    for k in range(0, whole, 4):
        f0, f1, f2, f3 = factors[k], factors[k + 1], factors[k + 2], factors[k + 3]
        r0, r1, r2, r3 = rows[k], rows[k + 1], rows[k + 2], rows[k + 3]
        for p in range(total.size):
            total[p] = (((total[p] - f0 * r0[p]) - f1 * r1[p]) - f2 * r2[p]) - f3 * r3[p]
    for k in range(whole, factors.size):
        f0, r0 = factors[k], rows[k]
        for p in range(total.size):
            total[p] -= f0 * r0[p]


@inner
def _taken(left: np.ndarray, row: np.ndarray, pivot: np.intp) -> float:
    """Take the squares of a row from what is left on the diagonal, at the pivot all; returns the sum."""
    for i in range(left.size):
        left[i] -= row[i] * row[i]
    left[pivot] = 0.0
    rest = 0.0
    for i in range(left.size):
        rest += max(left[i], 0.0)
    return rest


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
        subtract_rows(row, out[:steps, pivot], out)
        scale = 1 / np.sqrt(left[pivot])
        for i in range(n):
            row[i] *= scale
        rest = _taken(left, row, pivot)
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


@kernel(int64[::1](given(float32, 3), float64, float64[:, :, ::1]))
def _pivoted_each(matrices: np.ndarray, tolerance: float, out: np.ndarray) -> np.ndarray:
    """See `pivoted_each`."""
    n, rows, columns = matrices.shape
    ranks, gram, pivots = np.empty(n, np.int64), np.empty((rows, rows)), np.empty(rows, np.int64)
    lines = np.empty(rows, np.int64)
    for k in range(n):
        for r in range(rows):
            lines[r] = matrices.ctypes.data + 4 * (k * rows + r) * columns
        inner_products(lines, lines, columns, True, gram)
        ranks[k] = _pivoted(gram, tolerance, out[k], pivots)
        out[k, max(ranks[k], 0) :] = 0.0
    return ranks


def pivoted_each(matrices: np.ndarray, most: int, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """L [n, most, rows], of the products of the rows of each float32 matrix [n, rows, columns], as `pivoted`
    has it, with zeros behind; and their ranks [n], -1 where one would be above `most`."""
    out = np.empty((len(matrices), most, matrices.shape[1]))
    return out, _pivoted_each(matrices, tolerance, out)


def spanning(vectors: np.ndarray, most: int, tolerance: float) -> Decomposed | None:
    """`pivoted` of the inner products of vectors, the columns of a float32 matrix [width, n], without
    computing those that are not needed: only a pivot's are."""
    out, pivots = np.empty((most, vectors.shape[1])), np.empty(most, np.int64)
    rank = _spanning(vectors, tolerance, out, pivots)
    return None if rank < 0 else Decomposed(out[:rank], pivots[:rank])


@kernel(int64(given(float32, 2), float64, float64[:, ::1], int64[::1]))
def _spanning(vectors: np.ndarray, tolerance: float, out: np.ndarray, pivots: np.ndarray) -> int:
    """See `spanning`. Row k of L holds the products of all vectors with the k-th direction: with what is left
    of pivot k beside the directions before, at length 1."""
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


@kernel(types.void(given(float64, 2), given(float64, 2), float64[:, ::1]))
def _solve_upper(upper: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    """upper @ out = right."""
    for i in range(len(upper) - 1, -1, -1):
        row = out[i]
        for p in range(row.size):
            row[p] = right[i, p]
        subtract_rows(row, upper[i, i + 1 :], out[i + 1 :])
        for p in range(row.size):
            row[p] /= upper[i, i]
