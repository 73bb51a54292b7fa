"""The orthogonal factor U V^T of matrices U diag(s) V^T: their rotation without their scaling.

W has no more rows than columns, and W W^T = L^T L, where L has as many rows as W has directions (`cholesky`).
L L^T = Q diag(s^2) Q^T is small, and the left singular vectors of W are u = L^T q / s. So U V^T is the sum of
u (u^T W) / s over the directions.
"""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int64

from shoal.kernels.cholesky import pivoted_rows
from shoal.kernels.eigen import eigen_rows
from shoal.kernels.jit import Index, given, inner, kernel
from shoal.kernels.products import inner_products
from shoal.kernels.row_sums import subtract_rows

_ZERO, _ONE = np.float32(0), np.float32(1)


@inner
def _scaled(matrix: np.ndarray, out: np.ndarray) -> None:
    """Write the matrix divided by its largest absolute number to `out`, so that no square overflows."""
    peak = _ZERO
    for row in matrix:
        for value in row:
            peak = max(peak, abs(value))
    peak = peak if peak > _ZERO else _ONE
    for r in range(len(matrix)):
        for c in range(matrix.shape[1]):
            out[r, c] = matrix[r, c] / peak


@inner
def _small_gram(lower: np.ndarray) -> np.ndarray:
    """L L^T; sums run along memory in the transpose."""
    across, found = lower.T.copy(), np.zeros((len(lower), len(lower)))
    for i in range(len(lower)):
        subtract_rows(found[i], -across[:, i], across)
    return found


@inner
def _turn(wide: np.ndarray, lower: np.ndarray, most: Index, faint: float, out: np.ndarray) -> None:
    """`out` = U V^T of `wide`, whose rows have the inner products L^T L."""
    squares, vectors = eigen_rows(_small_gram(lower))
    rank, (rows, columns) = squares.size, wide.shape
    least = faint * faint * max(squares[-1], 0.0) if rank else 0.0
    images, weights = np.zeros((rank, columns), np.float32), np.zeros((rows, rank), np.float32)
    line, kept = np.empty(rows), 0
    for a in range(max(rank - most, 0), rank):
        if not squares[a] > least:
            continue
        size = np.sqrt(squares[a])
        line[:] = 0.0
        subtract_rows(line, -vectors[a] / size, lower)
        direction = line.astype(np.float32)
        subtract_rows(images[kept], -direction, wide)
        for r in range(rows):
            weights[r, kept] = -direction[r] / np.float32(size)
        kept += 1
    out[:] = _ZERO
    for r in range(rows):
        subtract_rows(out[r], weights[r, :kept], images)


@kernel(int64[::1](given(float32, 3), int64, int64, float64, float64, float32[:, :, ::1]))
def turns(
    matrices: np.ndarray, most: int, largest: int, tolerance: float, faint: float, out: np.ndarray
) -> np.ndarray:
    """out[k] = U V^T of the `most` strongest directions of matrices[k], which has no more rows than columns.

    Directions that are weaker than `faint` times the strongest are left out. Returns the ranks, not counting
    what is below `tolerance` of a matrix's energy; where a rank is above `largest`, it is -1 and nothing
    is written to `out`.
    """
    n, rows, columns = matrices.shape
    if out.shape != matrices.shape or rows > columns or not 0 < largest <= rows:
        raise ValueError("matrices need no more rows than columns, and as much room")
    ranks, wide = np.empty(n, np.int64), np.empty((rows, columns), np.float32)
    gram, lower = np.empty((rows, rows)), np.empty((largest, rows))
    pivots, lines = np.empty(rows, np.int64), np.empty(rows, np.int64)
    for r in range(rows):
        lines[r] = wide.ctypes.data + 4 * r * columns
    for k in range(n):
        _scaled(matrices[k], wide)
        inner_products(lines, lines, columns, True, gram)
        ranks[k] = pivoted_rows(gram, tolerance, lower, pivots)
        if ranks[k] >= 0:
            _turn(wide, lower[: ranks[k]], most, faint, out[k])
    return ranks
