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
    line = np.empty(across, np.float32)  # of as many columns as the sketch has, which stay in the cache
    for i in range(side):
        found = out[i]
        for first in range(0, columns, across):
            count = min(across, columns - first)
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


_LANES = 64  # sums of a product, side by side


@kernel(types.void(given(float32, 2), given(float32, 2), float64[:, ::1]))
def multiply(matrix: np.ndarray, vectors: np.ndarray, out: np.ndarray) -> None:
    """out[k, i] = the product of row i with vector k, which is as accurate as float32 sums are."""
    rows, columns = matrix.shape
    if vectors.shape[1] != columns or out.shape[0] != vectors.shape[0] or out.shape[1] != rows:
        raise ValueError("matrix, vectors and products do not fit together")
    sums, whole = np.empty(_LANES, np.float32), columns - columns % _LANES
    for i in range(rows):
        for k in range(len(vectors)):
            row, vector = matrix[i], vectors[k]
            sums[:] = 0
            for first in range(0, whole, _LANES):
                for lane in range(_LANES):
                    sums[lane] += row[first + lane] * vector[first + lane]
            for lane in range(columns - whole):
                sums[lane] += row[whole + lane] * vector[whole + lane]
            out[k, i] = sums.sum()
