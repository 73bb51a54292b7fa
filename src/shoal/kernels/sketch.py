"""Small matrices that stand for large ones: rows and columns added up with random signs (a count sketch)."""

from __future__ import annotations

import numpy as np
from numba import float32, float64, types

from shoal.kernels.jit import given, kernel


@kernel(types.void(given(float32, 2), given(float32, 1), given(float32, 1), float32[:, ::1]))
def add_up(matrix: np.ndarray, row_signs: np.ndarray, column_signs: np.ndarray, out: np.ndarray) -> None:
    """out[i, j] = the sum of matrix[r, c] times both signs, over the r that are i modulo out's height and
    the c that are j modulo its width; rows first, each sum in order."""
    rows, columns = matrix.shape
    side, across = out.shape
    if row_signs.size != rows or column_signs.size != columns or side > rows or across > columns:
        raise ValueError("a sketch is no larger than its matrix, which needs a sign for each row and column")
    line = np.empty(columns, np.float32)
    for i in range(side):
        for r in range(i, rows, side):
            row, sign = matrix[r], row_signs[r]
            if r == i:
                for c in range(columns):
                    line[c] = sign * row[c]
            else:
                for c in range(columns):
                    line[c] += sign * row[c]
        found = out[i]
        for c in range(across):
            found[c] = column_signs[c] * line[c]
        for first in range(across, columns, across):
            count = min(across, columns - first)
            more, signs = line[first : first + count], column_signs[first : first + count]
            for c in range(count):
                found[c] += signs[c] * more[c]


_LANES = 64  # sums of a product, side by side


@kernel(types.void(given(float32, 2), given(float32, 2), float64[:, ::1]))
def multiply(matrix: np.ndarray, vectors: np.ndarray, out: np.ndarray) -> None:
    """out[k, i] = the product of row i with vector k, which is as accurate as float32 sums are."""
    rows, columns = matrix.shape
    if vectors.shape[1] != columns or out.shape[0] != vectors.shape[0] or out.shape[1] != rows:
        raise ValueError("matrix, vectors and products do not fit together")
    sums = np.empty(_LANES, np.float32)
    for i in range(rows):
        for k in range(len(vectors)):
            sums[:] = 0
            for first in range(0, columns, _LANES):
                count = min(_LANES, columns - first)
                row, vector = matrix[i, first : first + count], vectors[k, first : first + count]
                here = sums[:count]
                for c in range(count):
                    here[c] += row[c] * vector[c]
            out[k, i] = sums.sum()
