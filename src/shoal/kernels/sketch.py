"""Small matrices that stand for large ones: rows and columns added up with random signs (a count sketch)."""

from __future__ import annotations

import numpy as np
from numba import float32, types

from shoal.kernels.jit import Index, given, inner, kernel
from shoal.kernels.tiles import LANES, make_dot


@inner
def _add_up_line(
    matrix: np.ndarray, row_signs: np.ndarray, column_signs: np.ndarray, i: Index, side: Index,
    line: np.ndarray, found: np.ndarray,
) -> None:  # fmt: skip
    """Row i of a sketch with `side` rows."""
    rows, columns = matrix.shape
    for first in range(0, columns, line.size):
        count = min(line.size, columns - first)
        for r in range(i, rows, side):
            row, sign = matrix[r, first : first + count], row_signs[r]
            if r == i:
                for c in range(count):
                    line[c] = sign * row[c]
            else:
                for c in range(count):
                    line[c] += sign * row[c]
        signs = column_signs[first : first + count]
        if first == 0:
            for c in range(count):
                found[c] = signs[c] * line[c]
        else:
            for c in range(count):
                found[c] += signs[c] * line[c]


@kernel(types.void(given(float32, 3), given(float32, 1), given(float32, 1), float32[:, :, ::1]))
def add_up(matrices: np.ndarray, row_signs: np.ndarray, column_signs: np.ndarray, out: np.ndarray) -> None:
    """out[k, i, j] = the sum of matrices[k, r, c] times both signs, over the r that are i modulo out's height
    and the c that are j modulo its width; rows first, each sum in order."""
    n, rows, columns = matrices.shape
    _, side, across = out.shape
    if row_signs.size != rows or column_signs.size != columns or side > rows or across > columns:
        raise ValueError("a sketch is no larger than its matrix, which needs a sign for each row and column")
    if len(out) != n:
        raise ValueError("every matrix needs a sketch")
    line = np.empty(across, np.float32)  # of as many columns as the sketch has, which stay in the cache
    for k in range(n):
        for i in range(side):
            _add_up_line(matrices[k], row_signs, column_signs, i, side, line, out[k, i])


_dots, _dots_of_one = make_dot(2, 2), make_dot(1, 2)


@kernel(types.void(given(float32, 2), given(float32, 2), float32[:, ::1]))
def multiply(matrix: np.ndarray, vectors: np.ndarray, out: np.ndarray) -> None:
    """out[k, i] = the product of row i with vector k, of two, which is as accurate as float32 sums are."""
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
