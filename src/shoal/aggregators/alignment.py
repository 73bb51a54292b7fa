"""Whether clients' matrices turn things the same way: the alignment of their singular directions.

    T_i = U_i V_i^T for every matrix D_i = U_i diag(s_i) V_i^T of an update       -> `turns`
    S_v(i, j) = <T_i, T_j> / (||T_i|| ||T_j||), in [-1, 1]                        -> `alignment`

T_i weighs all singular directions alike. That is what makes it tell to the end: late in training, unlike
clients pull the model to and fro along a few strong directions, and their updates as a whole have nothing
in common any more, but in the many weak directions they still agree.

So that a large matrix costs little, its rows and columns are first added up into at most `SIDE` of each,
with signs drawn anew in every round (a count sketch): inner products stay what they are in the mean.
"""

from __future__ import annotations

import torch
from torch import Tensor

from shoal.aggregators.matrix import gram
from shoal.core.key import Key
from shoal.parts.factors import eigen, rank_of

SIDE = 96  # rows and columns of a sketch
HISTORY = 4096  # numbers that are remembered of a client's updates
SIGNS = Key.from_seed(0).fold("history")  # of what is remembered: the same in all rounds
FAINT = 1e-3  # of a matrix's strongest direction: what is weaker may be rounding


def alignment(updates: Tensor, key: Key, rank: float = 1.0) -> Tensor:
    """[clients, clients] float64: S_v of one matrix; from updates [clients, rows, ...].

    Only the strongest directions count, as many as `rank` of the largest, so that none gains by sending more.
    """
    matrices = updates.reshape(*updates.shape[:2], -1)
    most = rank_of(rank, min(matrices.shape[1:]))
    for axis in (1, 2):
        matrices = folded(matrices, axis, SIDE, key.fold(axis))
    products = gram(turns(matrices, most).reshape(len(updates), -1))
    lengths = products.diagonal().sqrt()
    return products / torch.where(lengths > 0, lengths, 1.0) / torch.where(lengths > 0, lengths, 1.0)[:, None]


def folded(matrices: Tensor, axis: int, side: int, key: Key) -> Tensor:
    """With no more than `side` rows (axis 1) or columns (axis 2): sums of several, with random signs."""
    length = matrices.shape[axis]
    if length <= side:
        return matrices
    signs = (2 * key.integers(2, length) - 1).to(matrices)
    signed = matrices * (signs[:, None] if axis == 1 else signs)
    total = signed.narrow(axis, 0, side).clone()
    for first in range(side, length, side):
        count = min(side, length - first)
        total.narrow(axis, 0, count).add_(signed.narrow(axis, first, count))
    return total


def turns(matrices: Tensor, most: int) -> Tensor:
    """[n, rows, columns]: U V^T of the strongest directions of matrices [n, rows, columns].

    Directions that are nothing but rounding are left out.
    """
    wide = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    peaks = wide.abs().amax((1, 2), keepdim=True)
    wide = wide / torch.where(peaks > 0, peaks, 1.0)
    squares, vectors = eigen(wide @ wide.mT)
    kept = squares > FAINT**2 * squares[:, -1:].clamp(min=0)
    kept[:, : max(0, squares.shape[1] - most)] = False
    inverse = torch.where(kept, squares.clamp(min=torch.finfo(squares.dtype).tiny).rsqrt(), 0.0)
    turned: Tensor = (vectors * inverse[:, None]) @ (vectors.mT @ wide)
    return turned if matrices.shape[1] <= matrices.shape[2] else turned.mT
