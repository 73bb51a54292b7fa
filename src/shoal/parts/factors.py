"""Matrices as products of thin ones, by singular value decomposition.

A tensor of two or more axes is treated as a matrix [first axis, all others], for example a convolution as
[out, in * height * width]. Its singular vectors come from the product of the matrix with its own transpose on
the shorter side, which costs a fraction of a full decomposition.

The update of a large layer from a few samples has no more directions than there are samples. In this case the
directions are found first, by a Cholesky decomposition of that product that stops when the remainder is no
more than rounding, and only the part within them is decomposed. If all of them may stay, no decomposition is
needed.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.key import Key
from shoal.kernels import eigen as kernels
from shoal.kernels import sketch
from shoal.kernels.cholesky import pivoted
from shoal.kernels.eigen import TINY
from shoal.kernels.products import products

SMALLEST_SKETCH = 96  # columns
LARGE = 64  # the shorter side from which looking for few directions first pays
ROUNDING = 2.0**-30  # of a matrix's energy: the rounding error of an update, a difference of models, or less


class Factors(NamedTuple):
    """The matrix `u diag(s) v^T`, with singular vectors and values unless stated otherwise."""

    u: Tensor  # [rows, rank]
    s: Tensor  # [rank], descending
    v: Tensor  # [columns, rank]

    def dense(self, out: Tensor | None = None) -> Tensor:
        """[rows, columns]; written to `out`, if it is given."""
        u, s, v = self.directions()
        # a copy, because the last bits of a product depend on its operands' memory, which may be in a packet
        return torch.mm(u * s, v.clone(memory_format=torch.contiguous_format).T, out=out)

    def directions(self) -> Factors:
        """The factors without trailing zeros."""
        some = int(self.s.count_nonzero())
        if some == len(self.s) or bool(self.s[some:].any()):
            return self
        return Factors(self.u[:, :some], self.s[:some], self.v[:, :some])

    def are_singular(self) -> bool:
        """Whether these are the singular vectors and values of their product: orthonormal, and in order.

        Vectors are checked without their singular values, so those of small values count as much.
        """
        u, s, v = self.directions()
        if not len(s) or not bool((s > 0).all()):
            return False
        unit = torch.eye(len(s), device=s.device)
        straight = all(float((part.T @ part - unit).abs().max()) <= 1e-3 for part in (u, v))
        return straight and bool((s.diff() <= 1e-3 * s.max()).all())


def is_matrix(value: Tensor) -> bool:
    """Whether a tensor has at least two axes, so that it can be decomposed."""
    return value.dim() >= 2


def as_matrix(value: Tensor) -> Tensor:
    """The tensor as a matrix [rows, columns]."""
    return value.reshape(value.shape[0], -1)


def full_rank(value: Tensor) -> int:
    """The largest rank that a tensor can have as a matrix."""
    return min(as_matrix(value).shape)


def rank_of(share: float, largest: int) -> int:
    """This share of the largest rank, rounded up, at least 1."""
    return max(1, math.ceil(share * largest - 1e-9))


def spectrum(matrix: Tensor, gram: np.ndarray | None = None) -> tuple[Tensor, Tensor]:
    """The singular vectors of the shorter side [side, side] and the singular values [side], descending.

    `gram` is the product of that side with itself, if it is known.
    """
    peak = float(matrix.abs().max())
    if not 0 < peak < math.inf:  # nothing to decompose; not finite stays not finite: the server refuses it
        side = min(matrix.shape)
        values = matrix.new_full((side,), peak if peak == 0 else math.nan)
        return torch.eye(side, dtype=matrix.dtype, device=matrix.device), values
    if gram is None:
        wide = _wide(matrix) / peak  # so that no square overflows
        product = wide @ wide.T
    else:
        product = torch.from_numpy(gram / peak**2).to(matrix.dtype)
    squares, vectors = eigen(product)
    return vectors.flip(1), peak * squares.clamp(min=0).sqrt().flip(0)


def eigen(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and eigenvectors of one or several matrices of inner products."""
    if gram.shape[-1] < LARGE and gram.device.type == "cpu" and gram.dtype == torch.float64:
        several = gram.reshape(-1, *gram.shape[-2:]).contiguous()
        squares, vectors = torch.empty_like(several[:, 0]), torch.empty_like(several)
        kernels.eigen(several.numpy(), squares.numpy(), vectors.numpy())
        return squares.reshape(gram.shape[:-1]), vectors.reshape(gram.shape)
    try:
        squares, vectors = torch.linalg.eigh(gram)
    # in float32 it may not converge, for example with one value far above many zeros
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        squares, vectors = torch.linalg.eigh(gram.double())
    return squares.to(gram.dtype), vectors.to(gram.dtype)


def factored(matrix: Tensor, rank: int) -> Factors:
    """The nearest matrix of that rank (Eckart and Young). Missing directions are zeros."""
    gram = found = None
    if matrix.device.type == "cpu" and matrix.dtype == torch.float32:
        if min(matrix.shape) < LARGE:
            found = _of_small(matrix, rank)
        else:
            gram = products(_wide(matrix).contiguous().numpy())
            found = _of_few_directions(matrix, gram, rank) if TINY < gram.max() < 1 / TINY else None
    near, s, far = found or _of_many(matrix, gram, rank)
    return Factors(near, s, far) if matrix.shape[0] <= matrix.shape[1] else Factors(far, s, near)


def spanned(matrix: Tensor, rank: int) -> Factors | None:
    """A large matrix of at most that rank as a product of some of its rows (or columns, if there are fewer),
    which costs a fraction of its singular vectors; None if its rank is higher, or close to full. The factors
    have the matrix's own rank, and s is 1.
    """
    wide = _wide(matrix)
    rows, columns = wide.shape
    side = max(SMALLEST_SKETCH, rows // 2)
    if rows < LARGE or columns < side or matrix.device.type != "cpu" or matrix.dtype != torch.float32:
        return None
    most, numbers = min(rank, 2 * side // 3), wide.contiguous().numpy()
    near, far = map(
        torch.from_numpy, sketch.spanned(numbers, *_random_columns(columns), side, most, ROUNDING)
    )
    s = torch.ones(near.shape[1])
    if not len(s):
        return None
    return Factors(near, s, far) if matrix.shape[0] <= matrix.shape[1] else Factors(far, s, near)


@lru_cache(maxsize=32)
def _random_columns(width: int) -> tuple[np.ndarray, np.ndarray]:
    """Signs for a sketch of rows of this width, and two vectors of variance 1, [2, width], to test it."""
    key = Key.from_seed(0).fold("columns")
    return key.fold("signs").signs(width).numpy(), (math.sqrt(12) * (key.uniform((2, width)) - 0.5)).numpy()


def _of_few_directions(matrix: Tensor, gram: np.ndarray, rank: int) -> tuple[Tensor, Tensor, Tensor] | None:
    """The vectors of the shorter side, the values, and the vectors of the longer side; None if there are
    many directions."""
    found = pivoted(gram, len(gram) // 2, ROUNDING)
    if found is None:
        return None
    rows = torch.from_numpy(found)
    squares, turned = eigen(rows @ rows.T)
    s = squares.flip(0)[:rank].sqrt()
    near = rows.T @ (turned.flip(1)[:, :rank] / s)
    far = ((near / s).T.float() @ _wide(matrix)).T
    return _padded(near, rank), _padded(s, rank), _padded(far, rank)


def _of_small(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor] | None:
    """As `_of_few_directions`, for a matrix that is not large; None if squares would under- or overflow."""
    wide = _wide(matrix).contiguous()
    near, s, far = torch.empty(len(wide), rank), torch.empty(rank), torch.empty(wide.shape[1], rank)
    fits = kernels.decompose(wide.numpy(), near.numpy(), s.numpy(), far.numpy())
    return (near, s, far) if fits else None


def _of_many(matrix: Tensor, gram: np.ndarray | None, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `_of_few_directions`, for any matrix."""
    vectors, values = spectrum(matrix, gram)
    near = vectors[:, :rank].contiguous()  # as it arrives: the bits of a product depend on the layout
    finite = bool(values[0].isfinite())
    unit = 2.0 ** math.frexp(float(values[0]))[1] if finite else 1.0  # so that no square over- or underflows
    far = near.T @ (_wide(matrix) / unit)
    s = far.norm(dim=1) if finite else values[:rank]
    far = (far / positive(s)[:, None]).T.contiguous()
    return near, s * unit, far


def positive(values: Tensor) -> Tensor:
    """The values with 1 in place of 0 and less: dividing by these changes nothing."""
    return torch.where(values > 0, values, 1.0)


def _padded(values: Tensor, width: int) -> Tensor:
    """The values in float32, padded with zeros to this width."""
    padded = values.new_zeros(*values.shape[:-1], width, dtype=torch.float32)
    padded[..., : values.shape[-1]] = values
    return padded


def _wide(matrix: Tensor) -> Tensor:
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
