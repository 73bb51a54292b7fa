"""The alignment of the singular directions of clients' updates: whether their matrices rotate alike.

    T_i = U_i V_i^T for every matrix D_i = U_i diag(s_i) V_i^T of an update       -> `turns`
    S_v(i, j) = <T_i, T_j> / (||T_i|| ||T_j||), in [-1, 1]                        -> `alignment`

T_i gives all singular directions equal weight, so that it stays informative until the end of training: late
in training, dissimilar clients pull the model back and forth along a few strong directions, and their updates
as a whole have nothing in common any more, but in the many weak directions they still agree.

To keep large matrices cheap, their rows and columns are first added up into at most `SIDE` of each, with
signs drawn anew in every round (a count sketch): inner products are preserved in expectation.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from shoal.aggregators.matrix import gram
from shoal.core.key import Key
from shoal.kernels import polar_factors as kernels
from shoal.kernels.sketch import add_up
from shoal.parts.factors import LARGE, ROUNDING, eigen, positive, rank_of

SIDE = 96  # rows and columns of a sketch
HISTORY = 4096  # numbers in the sketch of a client's past updates
SIGNS = Key.from_seed(0).fold("history")  # for the signs of these sketches: the same in all rounds
FAINT = 1e-3  # of a matrix's strongest direction: weaker ones may be rounding errors


def alignment(updates: Tensor, key: Key, rank: float = 1.0) -> Tensor:
    """[clients, clients] float64: S_v of one matrix; from updates [clients, rows, ...].

    Only the strongest directions count, up to the share `rank` of the full rank, so that no client gains by
    sending more.
    """
    matrices = updates.reshape(*updates.shape[:2], -1)
    most = rank_of(rank, min(matrices.shape[1:]))
    matrices = folded(matrices, SIDE, key)
    likeness = gram(turns(matrices, most).reshape(len(updates), -1))
    lengths = positive(likeness.diagonal().sqrt())
    return likeness / lengths / lengths[:, None]


def folded(matrices: Tensor, side: int, key: Key) -> Tensor:
    """Sketches with at most `side` rows and columns, each a sum of several with random signs."""
    n, rows, columns = matrices.shape
    if max(rows, columns) <= side:
        return matrices
    if matrices.device.type != "cpu" or matrices.dtype != torch.float32:
        matrices = (matrices / positive(matrices.abs().amax((1, 2), keepdim=True))).float().cpu()
    row_signs, column_signs = key.fold(1).signs(rows).numpy(), key.fold(2).signs(columns).numpy()
    total = torch.empty(n, min(rows, side), min(columns, side))
    for matrix, sketch in zip(matrices, total.numpy(), strict=True):  # all at once would need a copy
        add_up(matrix.contiguous().numpy()[None], row_signs, column_signs, sketch[None])
    return total


def turns(matrices: Tensor, most: int) -> Tensor:
    """[n, rows, columns]: U V^T of the strongest directions of matrices [n, rows, columns].

    Directions that may be rounding errors are left out.
    """
    wide = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    turned, many = torch.empty_like(wide, memory_format=torch.contiguous_format), list(range(len(wide)))
    if wide.device.type == "cpu" and wide.dtype == torch.float32:
        side = wide.shape[1]
        largest = side if side < LARGE else side * 2 // 3  # LAPACK is faster for many directions
        ranks = kernels.turns(wide.contiguous().numpy(), most, largest, ROUNDING, FAINT, turned.numpy())
        many = np.flatnonzero(ranks < 0).tolist()
    if many:
        turned[many] = _turned(wide[many], most)
    return turned if matrices.shape[1] <= matrices.shape[2] else turned.mT


def _turned(wide: Tensor, most: int) -> Tensor:
    """`turns` for any matrices with no more rows than columns."""
    wide = wide / positive(wide.abs().amax((1, 2), keepdim=True))
    squares, vectors = eigen(wide @ wide.mT)
    kept = squares > FAINT**2 * squares[:, -1:].clamp(min=0)
    kept[:, : max(0, squares.shape[1] - most)] = False
    inverse = torch.where(kept, positive(squares).rsqrt(), 0.0)
    return (vectors * inverse[:, None]) @ (vectors.mT @ wide)
