"""Signatures: the subspace in which a client's samples lie, and the distance between two of them.

Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin: Efficient Distribution Similarity Identification in
Clustered Federated Learning via Principal Angles between Client Data Subspaces, AAAI 2023 (PACFL).

A signature U [features, rank] holds the first left singular vectors of the client's samples, one sample per
column and not centred, so that its size does not depend on the number of samples. Two signatures are compared
by their projectors U U^T, which do not change if the vectors change sign or are rotated among themselves:

    ||U U^T - V V^T||_F^2 = ||U||^4 - 2 ||U^T V||_F^2 + ||V||^4,  2 sum_j sin^2(angle_j) for equal ranks

Projectors themselves are never formed. The mean of projectors has the form A A^T with a tall matrix A; it is
kept as A.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from shoal.core.errors import DeclinedError

SMALLEST = 1e-6  # singular values below this share of the largest are rounding errors
WIDEST = 64  # columns of A; the weakest directions of a wider one are left out


def signature(x: Tensor, rank: int) -> Tensor:
    """[features, rank] float32: the first left singular vectors of the samples x [n, ...].

    Samples that span fewer dimensions give columns of zeros. The largest entry of a vector is positive.
    """
    if not len(x):
        raise DeclinedError("it holds no samples, from which its signature could be computed")
    rows = x.reshape(len(x), -1).double()  # [n, features]
    wide = len(rows) < rows.shape[1]
    values, vectors = torch.linalg.eigh(rows @ rows.T if wide else rows.T @ rows)
    kept = min(rank, int((values > values[-1].clamp(min=0) * SMALLEST**2).sum()))
    vectors = vectors[:, len(values) - kept :].flip(1)
    if wide:
        vectors = rows.T @ vectors
        vectors = vectors / vectors.norm(dim=0)
    found = torch.zeros(rows.shape[1], rank, dtype=torch.float32)
    found[:, :kept] = vectors * _signs(vectors)
    return found


def _signs(vectors: Tensor) -> Tensor:
    if not vectors.numel():
        return vectors.new_ones(vectors.shape[1])
    return vectors.gather(0, vectors.abs().argmax(0, keepdim=True))[0].sign()


def products(first: Sequence[Tensor], second: Sequence[Tensor]) -> Tensor:
    """[first, second] float64: the inner products of the projectors, ||U_i^T V_j||_F^2."""
    left, right = (torch.cat([one.double() for one in some], 1) for some in (first, second))
    squares = (left.T @ right).square()  # one entry for each pair of columns
    rows, columns = ([one.shape[1] for one in some] for some in (first, second))
    by_row = torch.stack([part.sum(0) for part in torch.split(squares, rows)])
    return torch.stack([part.sum(1) for part in torch.split(by_row, columns, 1)], 1)


def distances(first: Sequence[Tensor], second: Sequence[Tensor]) -> Tensor:
    """[first, second] float64: the Frobenius distances between the projectors."""
    own = [torch.stack([products([one], [one])[0, 0] for one in some]) for some in (first, second)]
    squares = own[0][:, None] - 2 * products(first, second) + own[1]
    return squares.clamp(min=0).sqrt()


def mean_projector(members: Sequence[Tensor]) -> Tensor:
    """A with A A^T = the mean of the members' projectors."""
    return _narrow(torch.cat([one.double() for one in members], 1) / len(members) ** 0.5)


def with_member(mean: Tensor, count: int, member: Tensor) -> Tensor:
    """The mean projector of `count` members after one more has joined."""
    old, new = count / (count + 1), 1 / (count + 1)
    return _narrow(torch.cat([mean * old**0.5, member.double() * new**0.5], 1))


def _narrow(factor: Tensor) -> Tensor:
    if factor.shape[1] <= WIDEST:
        return factor
    left, values, _ = torch.linalg.svd(factor, full_matrices=False)
    narrow: Tensor = left[:, :WIDEST] * values[:WIDEST]
    return narrow
