"""Eigenvectors of small symmetric matrices, for which calling LAPACK takes longer than computing them.

Householder reflections make a matrix tridiagonal, A = Q T Q^T, and the implicit QL algorithm makes that
diagonal (Golub and Van Loan, Matrix Computations, section 8.3). Eigenvectors are stored as rows here, so that
the innermost loops run along memory.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float32, float64, types

from shoal.kernels.jit import given, inner, kernel
from shoal.kernels.products import inner_products
from shoal.kernels.row_sums import subtract_rows

_ROUNDING = 2.0**-53  # off-diagonal numbers up to this share of their diagonal neighbours count as 0
TINY = 1e-60  # squares below this, or above its inverse, may not fit into float32
_BYTES = 4  # of a float32
_STEPS = 60  # at most, for one eigenvalue; one or two are usual


@inner
def _tridiagonalise(matrix: np.ndarray, diagonal: np.ndarray, beside: np.ndarray) -> np.ndarray:
    """The transpose of Q. The matrix is overwritten: its rows receive the vectors of the reflections."""
    n, scales, sums = len(matrix), np.zeros(len(matrix)), np.empty(len(matrix))
    for k in range(n):
        diagonal[k] = matrix[k, k]
        if k >= n - 2:
            beside[k] = matrix[k, n - 1] if k == n - 2 else 0.0
            continue
        v, rest = matrix[k, k + 1 :], matrix[k + 1 :, k + 1 :]
        square = 0.0
        for i in range(1, v.size):
            square += v[i] * v[i]
        beside[k] = v[0]
        if square == 0:
            continue
        length = np.sqrt(v[0] * v[0] + square)
        beside[k] = -length if v[0] > 0 else length
        scales[k] = 1 / (length * (length + abs(v[0])))
        v[0] -= beside[k]
        w = _image(rest, v, scales[k], sums)
        along = 0.0
        for i in range(v.size):
            along += w[i] * v[i]
        for i in range(v.size):
            w[i] -= scales[k] / 2 * along * v[i]
        for i in range(v.size):
            row, x, y = rest[i], v[i], w[i]
            for j in range(v.size):
                row[j] -= x * w[j] + y * v[j]
    turned = np.eye(n)
    for k in range(n - 3, -1, -1):
        v, rest = matrix[k, k + 1 :], turned[k + 1 :, k + 1 :]
        w = _image(rest, v, scales[k], sums)
        for i in range(v.size):
            row, x = rest[i], v[i]
            for j in range(v.size):
                row[j] -= x * w[j]
    return turned.T.copy()


@inner
def _image(rows: np.ndarray, vector: np.ndarray, scale: float, sums: np.ndarray) -> np.ndarray:
    """The sum of rows, each times its entry in the vector and times `scale`."""
    found = sums[: vector.size]
    found[:] = 0.0
    subtract_rows(found, -scale * vector, rows)
    return found


@inner
def _diagonalise(diagonal: np.ndarray, beside: np.ndarray, rows: np.ndarray) -> None:
    """Turn `diagonal` into a tridiagonal matrix's eigenvalues; the rotations are applied to `rows` too."""
    n = diagonal.size
    for first in range(n):
        for _ in range(_STEPS):
            last = first
            while last < n - 1:
                if abs(beside[last]) <= _ROUNDING * (abs(diagonal[last]) + abs(diagonal[last + 1])):
                    break
                last += 1
            if last == first:
                break
            _ql_step(diagonal, beside, rows, first, last)


@inner
def _ql_step(diagonal: np.ndarray, beside: np.ndarray, rows: np.ndarray, first: int, last: int) -> None:
    """One implicit step with Wilkinson's shift, between two places, starting at the last and going up."""
    ratio = (diagonal[first + 1] - diagonal[first]) / (2 * beside[first])
    root = np.sqrt(ratio * ratio + 1)
    shift = diagonal[first] - beside[first] / (ratio + (root if ratio >= 0 else -root))
    bulge, cosine, sine, moved = diagonal[last] - shift, 1.0, 1.0, 0.0
    for i in range(last - 1, first - 1, -1):
        far, near = sine * beside[i], cosine * beside[i]
        beside[i + 1] = length = np.sqrt(far * far + bulge * bulge)
        if length == 0:  # an off-diagonal number has vanished in the middle
            diagonal[i + 1] -= moved
            beside[last] = 0.0
            return
        sine, cosine = far / length, bulge / length
        before = diagonal[i + 1] - moved
        gained = (diagonal[i] - before) * sine + 2 * cosine * near
        moved = sine * gained
        diagonal[i + 1] = before + moved
        bulge = cosine * gained - near
        one, two = rows[i], rows[i + 1]
        for p in range(one.size):
            x, y = one[p], two[p]
            one[p], two[p] = cosine * x - sine * y, sine * x + cosine * y
    diagonal[first] -= moved
    beside[first], beside[last] = bulge, 0.0


@inner
def eigen_rows(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues in ascending order, and eigenvectors as rows."""
    values, beside = np.empty(len(gram)), np.empty(len(gram))
    rows = _tridiagonalise(gram.copy(), values, beside)
    _diagonalise(values, beside, rows)
    order = np.argsort(values)
    return values[order], rows[order]


@kernel(types.void(given(float64, 3), float64[:, ::1], float64[:, :, ::1]))
def eigen(grams: np.ndarray, values: np.ndarray, vectors: np.ndarray) -> None:
    """Eigenvalues [n, side], ascending, and eigenvectors [n, side, side], as columns, of matrices of inner
    products. Zeros that pad a smaller matrix cost nothing, and their eigenvectors are zeros."""
    n, side = values.shape
    if grams.shape != (n, side, side) or vectors.shape != grams.shape:
        raise ValueError("matrices, values and vectors do not fit together")
    values[:], vectors[:] = 0.0, 0.0
    for k in range(n):
        size = side
        while size and grams[k, size - 1, size - 1] == 0:
            size -= 1
        found, rows = eigen_rows(grams[k, :size, :size])
        values[k, side - size :] = found
        vectors[k, :size, side - size :] = rows.T


@kernel(boolean(given(float32, 2), float32[:, ::1], float32[::1], float32[:, ::1]))
def decompose(matrix: np.ndarray, near: np.ndarray, values: np.ndarray, far: np.ndarray) -> bool:
    """The largest singular values [k] of a matrix [n, m], and its singular vectors: `near` [n, k] and `far`
    [m, k]. In `far`, vectors of a singular value of 0 are 0. Returns False, and writes nothing, if
    squares would be too large or too small."""
    n, columns = matrix.shape
    if near.shape != (n, values.size) or far.shape != (columns, values.size) or values.size > n:
        raise ValueError("matrix, values and vectors do not fit together")
    lines, gram = np.empty(n, np.int64), np.empty((n, n))
    for i in range(n):
        lines[i] = matrix.ctypes.data + _BYTES * i * columns
    inner_products(lines, lines, columns, True, gram)
    if not TINY < gram.max() < 1 / TINY:
        return False
    _, rows = eigen_rows(gram)
    line = np.empty(columns)
    for k in range(values.size):
        vector = rows[n - 1 - k]
        near[:, k] = vector
        line[:] = 0.0
        subtract_rows(line, -vector, matrix)
        length = np.sqrt((line * line).sum())
        values[k] = length
        for c in range(columns):
            far[c, k] = line[c] / length if length != 0 else 0.0
    return True
