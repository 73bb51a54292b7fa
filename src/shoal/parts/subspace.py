"""Principal subspaces that clients find in their own data, and how they are merged.

Grammenos, Mendoza-Smith, Crowcroft, Mascolo: Federated Principal Component Analysis, NeurIPS 2020, section 3.

    client i:  x_i^T = U_i diag(s_i) V_i^T, of which U_i and s_i of rank r leave it         -> `subspace`
    server:    U, s = those of [l U_1 diag(s_1) | U_2 diag(s_2)], cut to rank r             -> `merge`

With a sufficient rank a merge is exact: U and s give the same X^T X as all samples together, and so do
further merges, in any order and in any tree. l <= 1 scales down what came before, for streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.core.errors import SpecError


class Subspace(NamedTuple):
    """The strongest directions of some samples, and their strengths."""

    u: Tensor  # [features, rank] float64, orthonormal
    s: Tensor  # [rank], descending

    @property
    def second_moment(self) -> Tensor:
        """[features, features]: X^T X of the samples, as far as it lies in the subspace."""
        return (self.u * self.s.square()) @ self.u.T

    def captured(self, samples: Tensor) -> float:
        """The share of the samples' energy that lies in the subspace; samples [n, features]."""
        exact = samples.double()
        whole = float(exact.square().sum())
        return float((exact @ self.u).square().sum()) / whole if whole else 1.0


def subspace(samples: Tensor, rank: int) -> Subspace:
    """The `rank` strongest directions of samples [n, features], or as many as there are."""
    if rank < 1:
        raise SpecError(f"rank must be at least 1, got {rank}")
    return _cut(samples.double().T, rank)


def merge(one: Subspace, two: Subspace, rank: int, forgetting: float = 1.0) -> Subspace:
    """The subspace of both; the first is scaled by `forgetting`."""
    if len(one.u) != len(two.u):
        raise SpecError(f"subspaces of {len(one.u)} and {len(two.u)} features cannot be merged")
    if not 0 < forgetting <= 1:
        raise SpecError(f"forgetting must be in (0, 1], got {forgetting:g}; 1 forgets nothing")
    return _cut(torch.cat([forgetting * one.u * one.s, two.u * two.s], 1), rank)


def merged(some: Sequence[Subspace], rank: int) -> Subspace:
    """The subspace of all, merged one after another."""
    return reduce(lambda one, two: merge(one, two, rank), some)


def _cut(columns: Tensor, rank: int) -> Subspace:
    u, s, _ = torch.linalg.svd(columns, full_matrices=False)
    return Subspace(u[:, :rank].contiguous(), s[:rank].contiguous())
