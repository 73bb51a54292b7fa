"""Small matrices that replace large ones: rows and columns added up with random signs (a count sketch)."""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int64, types

from shoal.kernels.cholesky import interpolate, spanning
from shoal.kernels.eigen import TINY
from shoal.kernels.jit import given, inner, kernel
from shoal.kernels.row_sums import subtract_rows
from shoal.kernels.tiles import LANES, make_dot


@kernel(types.void(given(float32, 3), given(float32, 1), given(float32, 1), float32[:, :, ::1]))
def add_up(matrices: np.ndarray, row_signs: np.ndarray, column_signs: np.ndarray, out: np.ndarray) -> None:
    """out[k, i, j] = the sum of matrices[k, r, c] times both signs, over all r equal to i modulo out's height
    and all c equal to j modulo its width; row by row, and in order within each row."""
    n, rows, columns = matrices.shape
    _, side, across = out.shape
    if row_signs.size != rows or column_signs.size != columns or side > rows or across > columns:
        raise ValueError("a sketch is no larger than its matrix, which needs a sign for each row and column")
    if len(out) != n:
        raise ValueError("every matrix needs a sketch")
    out[:] = 0.0
    for k in range(n):
        for r in range(rows):
            row, sign, found = matrices[k, r], row_signs[r], out[k, r % side]
            for first in range(0, columns, across):
                some, signs = row[first : first + across], column_signs[first : first + across]
                for c in range(some.size):
                    found[c] += some[c] * (signs[c] * sign)


_dots, _dots_of_one = make_dot(2, 2), make_dot(1, 2)


@kernel(types.void(given(float32, 2), given(float32, 2), float32[:, ::1]))
def multiply(matrix: np.ndarray, vectors: np.ndarray, out: np.ndarray) -> None:
    """out[k, i] = the product of row i with vector k, of two; as accurate as float32 sums are."""
    rows, columns = matrix.shape
    if vectors.shape != (2, columns) or out.shape != (2, rows):
        raise ValueError("matrix, vectors and products do not fit together")
    whole = columns - columns % LANES
    lines, both, found = matrix.reshape(-1), vectors.reshape(-1), out.reshape(-1)
    found[:] = 0.0
    if whole:
        for i in range(0, rows - 1, 2):
            _dots(found, i, rows, lines, i * columns, columns, both, 0, columns, whole)
        if rows % 2:
            last = rows - 1
            _dots_of_one(found, last, rows, lines, last * columns, columns, both, 0, columns, whole)
    for i in range(rows):
        for k in range(2):
            for c in range(whole, columns):
                out[k, i] += matrix[i, c] * vectors[k, c]


@inner
def _missed(images: np.ndarray, spread: np.ndarray, pivots: np.ndarray) -> float:
    """The squared distance between a matrix's products with random vectors and the same products of its
    reconstruction from the pivots."""
    total = 0.0
    for image in images:
        line = image.astype(np.float64)
        subtract_rows(line, line[pivots], spread)
        for value in line:
            total += value * value
    return total


_FACTORS = types.UniTuple(float32[:, ::1], 2)  # type: ignore[no-untyped-call]


@kernel(_FACTORS(given(float32, 2), given(float32, 1), given(float32, 2), int64, int64, float64))
def spanned(
    matrix: np.ndarray, signs: np.ndarray, probes: np.ndarray, side: int, most: int, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """T [rows, rank] and R^T [columns, rank] such that the matrix is T R up to `tolerance` of its energy. R
    consists of at most `most` of its rows. Both have no columns if the rank is higher, or the energy too
    large or too small to work with.

    The rows are found in a sketch with `side` columns. Two random vectors test whether the matrix is T R.
    """
    rows, columns = matrix.shape
    nothing = np.empty((rows, 0), np.float32), np.empty((columns, 0), np.float32)
    sketch = np.empty((1, rows, side), np.float32)
    add_up(matrix.reshape(1, rows, columns), np.ones(rows, np.float32), signs, sketch)
    energy = 0.0
    for value in sketch.reshape(-1):
        energy += np.float64(value) * np.float64(value)
    if not TINY < energy < 1 / TINY:
        return nothing
    lower, pivots = np.empty((most, rows)), np.empty(most, np.int64)
    rank = spanning(sketch[0].T.copy(), tolerance, lower, pivots)
    if rank < 0:
        return nothing
    pivots, spread = pivots[:rank], np.empty((rank, rows))
    interpolate(lower[:rank], pivots, spread)
    images = np.empty((2, rows), np.float32)
    multiply(matrix, probes, images)
    if not _missed(images, spread, pivots) <= 8 * tolerance * energy:
        return nothing
    near, far = np.empty((rows, rank), np.float32), np.empty((columns, rank), np.float32)
    near[:] = spread.T
    for k in range(rank):
        far[:, k] = matrix[pivots[k]]
    return near, far
