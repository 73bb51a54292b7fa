"""Matrices as products of thin ones, by singular value decomposition.

A tensor of two or more axes is a matrix [first axis, all others]: a convolution [out, in * height * width].
Its singular vectors come from the product of the matrix with its own transpose on the shorter side, which
costs a fraction of a full decomposition.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Factors(NamedTuple):
    """The matrix `u diag(s) v^T`."""

    u: Tensor  # [rows, rank]
    s: Tensor  # [rank], descending
    v: Tensor  # [columns, rank]

    def dense(self) -> Tensor:
        """[rows, columns]."""
        return (self.u * self.s) @ self.v.T


def is_matrix(value: Tensor) -> bool:
    """Whether a tensor has singular values worth the name."""
    return value.dim() >= 2


def as_matrix(value: Tensor) -> Tensor:
    """[rows, columns]."""
    return value.reshape(value.shape[0], -1)


def full_rank(value: Tensor) -> int:
    """The largest rank that a tensor can have as a matrix."""
    return min(as_matrix(value).shape)


def rank_of(share: float, largest: int) -> int:
    """The rank that is this share of the largest, rounded up, at least 1."""
    return max(1, math.ceil(share * largest - 1e-9))


def spectrum(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The singular vectors of the shorter side [side, side] and the singular values [side], descending."""
    peak = float(matrix.abs().max())
    if not 0 < peak < math.inf:  # nothing to decompose; what is not finite stays so, for the server to refuse
        side = min(matrix.shape)
        values = matrix.new_full((side,), peak if peak == 0 else math.nan)
        return torch.eye(side, dtype=matrix.dtype, device=matrix.device), values
    wide = _wide(matrix) / peak  # so that no square overflows
    squares, vectors = _eigen(wide @ wide.T)
    return vectors.flip(1), peak * squares.clamp(min=0).sqrt().flip(0)


def _eigen(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and eigenvectors."""
    try:
        squares, vectors = torch.linalg.eigh(gram)
    # in float32 it may not converge, as with one value far above many zeros
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        squares, vectors = torch.linalg.eigh(gram.double())
    return squares.to(gram.dtype), vectors.to(gram.dtype)


def factored(matrix: Tensor, rank: int) -> Factors:
    """The nearest matrix of that rank (Eckart and Young)."""
    vectors, values = spectrum(matrix)
    near = vectors[:, :rank].contiguous()  # as it arrives: the bits of a product depend on the layout
    finite = bool(values[0].isfinite())
    unit = 2.0 ** math.frexp(float(values[0]))[1] if finite else 1.0  # so that no square over- or underflows
    far = near.T @ (_wide(matrix) / unit)
    s = far.norm(dim=1) if finite else values[:rank]
    far = (far / torch.where(s > 0, s, 1.0)[:, None]).T.contiguous()
    s = s * unit
    return Factors(near, s, far) if matrix.shape[0] <= matrix.shape[1] else Factors(far, s, near)


def _wide(matrix: Tensor) -> Tensor:
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
