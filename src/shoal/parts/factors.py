"""Matrices as products of thin ones, by singular value decomposition.

A tensor of two or more axes is a matrix [first axis, all others]: a convolution [out, in * height * width].
Its singular vectors come from the product of the matrix with its own transpose on the shorter side, which
costs a fraction of a full decomposition.

What a few samples change in a large layer has no more directions than there are samples. Then these are
found first, by a Cholesky decomposition of that product that ends when what is left is no more than rounding,
and only what lies in them is decomposed. Where all of them may stay, nothing needs to be decomposed.
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
LARGE = 64  # sides from which on it pays to look for few directions first
ROUNDING = 2.0**-30  # of a matrix's energy; an update, the difference of two models, is rounded to no less


class Factors(NamedTuple):
    """The matrix `u diag(s) v^T`; singular vectors and values, if nothing else is said."""

    u: Tensor  # [rows, rank]
    s: Tensor  # [rank], descending
    v: Tensor  # [columns, rank]

    def dense(self, out: Tensor | None = None) -> Tensor:
        """[rows, columns]; written to `out`, if that is given."""
        u, s, v = self.directions()
        # a copy, because the last bits of a product depend on where its operands lie: not in a packet
        return torch.mm(u * s, v.clone(memory_format=torch.contiguous_format).T, out=out)

    def directions(self) -> Factors:
        """Without the zeros behind."""
        some = int(self.s.count_nonzero())
        if some == len(self.s) or bool(self.s[some:].any()):
            return self
        return Factors(self.u[:, :some], self.s[:some], self.v[:, :some])

    def are_singular(self) -> bool:
        """Whether these are the singular vectors and values of their product: orthonormal, and in order.

        Each vector is looked at as it is, not times its value: those of small values count as much.
        """
        u, s, v = self.directions()
        if not len(s) or not bool((s > 0).all()):
            return False
        unit = torch.eye(len(s), device=s.device)
        straight = all(float((part.T @ part - unit).abs().max()) <= 1e-3 for part in (u, v))
        return straight and bool((s.diff() <= 1e-3 * s.max()).all())


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


def spectrum(matrix: Tensor, gram: np.ndarray | None = None) -> tuple[Tensor, Tensor]:
    """The singular vectors of the shorter side [side, side] and the singular values [side], descending.

    `gram` is the product of that side with itself, where it is known.
    """
    peak = float(matrix.abs().max())
    if not 0 < peak < math.inf:  # nothing to decompose; what is not finite stays so, for the server to refuse
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
    """Eigenvalues, ascending, and eigenvectors of a matrix of inner products; also of several."""
    if gram.shape[-1] < LARGE and gram.device.type == "cpu" and gram.dtype == torch.float64:
        several = gram.reshape(-1, *gram.shape[-2:]).contiguous()
        squares, vectors = torch.empty_like(several[:, 0]), torch.empty_like(several)
        kernels.eigen(several.numpy(), squares.numpy(), vectors.numpy())
        return squares.reshape(gram.shape[:-1]), vectors.reshape(gram.shape)
    try:
        squares, vectors = torch.linalg.eigh(gram)
    # in float32 it may not converge, as with one value far above many zeros
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        squares, vectors = torch.linalg.eigh(gram.double())
    return squares.to(gram.dtype), vectors.to(gram.dtype)


def factored(matrix: Tensor, rank: int) -> Factors:
    """The nearest matrix of that rank (Eckart and Young). Directions that it does not have are zeros."""
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
    """A large matrix of no more than that rank as a product of some of its rows (or of columns, if these are
    fewer), which costs a fraction of its singular vectors; None if its rank is higher, or near full rank. The
    factors have its own rank, and s is 1.
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
    """Signs for a sketch of rows of this width, and two vectors of variance 1, [2, width], to try it with."""
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
    """The same, of a matrix that is not large; None if it is too faint, or too strong, for squares."""
    wide = _wide(matrix).contiguous()
    near, s, far = torch.empty(len(wide), rank), torch.empty(rank), torch.empty(wide.shape[1], rank)
    fits = kernels.decompose(wide.numpy(), near.numpy(), s.numpy(), far.numpy())
    return (near, s, far) if fits else None


def _of_many(matrix: Tensor, gram: np.ndarray | None, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same, whatever the matrix is like."""
    vectors, values = spectrum(matrix, gram)
    near = vectors[:, :rank].contiguous()  # as it arrives: the bits of a product depend on the layout
    finite = bool(values[0].isfinite())
    unit = 2.0 ** math.frexp(float(values[0]))[1] if finite else 1.0  # so that no square over- or underflows
    far = near.T @ (_wide(matrix) / unit)
    s = far.norm(dim=1) if finite else values[:rank]
    far = (far / positive(s)[:, None]).T.contiguous()
    return near, s * unit, far


def positive(values: Tensor) -> Tensor:
    """With 1 in place of 0 and less: what is divided by them stays."""
    return torch.where(values > 0, values, 1.0)


def _padded(values: Tensor, width: int) -> Tensor:
    """In float32, with zeros behind, up to this width."""
    padded = values.new_zeros(*values.shape[:-1], width, dtype=torch.float32)
    padded[..., : values.shape[-1]] = values
    return padded


def _wide(matrix: Tensor) -> Tensor:
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
