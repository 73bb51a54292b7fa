"""The geometric median: the point with the smallest sum of distances to all updates.

Pillutla, Kakade, Harchaoui: Robust Aggregation for Federated Learning, IEEE Transactions on Signal
Processing 70, 2022 (RFA), Algorithm 2.

    z <- argmin_z sum_i a_i ||z - D_i||,  by smoothed Weiszfeld steps:
    b_i = a_i / max(nu, ||z - D_i||),   z <- sum_i b_i D_i / sum_i b_i          -> `weiszfeld`
    w <- w + z

Departures: the paper stops after a few steps, because each is a round of secure aggregation; this server has
all updates, computes with their distances alone, and continues until convergence, for at most `iterations`
steps. An update longer than a million times the median norm is shortened to that: the geometric median hardly
depends on how far away a point is, and numerical precision would be lost. a_i is 1 unless
`weights = "samples"`, the paper's choice, because sample counts are only claims.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.aggregators.matrix import (
    Decision,
    MatrixRule,
    UpdateMatrix,
    gram,
    median,
    shortening,
    squared_distances,
    weighted,
)
from shoal.core.errors import SpecError

CONVERGED = 1e-9  # total change of the coefficients at which the iteration stops
FAR = 1e6  # in median norms: beyond, only the direction of an update counts


def weiszfeld(squares: Tensor, weights: Tensor, iterations: int, smoothing: float) -> Tensor:
    """[n] float64: the geometric median's coefficients, from squared distances between the points alone.

    The distance of a point to the current centre `z = sum_j b_j w_j` is
    `||z - w_i||^2 = sum_j b_j d_ij^2 - sum_jk b_j b_k d_jk^2 / 2`, so an iteration costs next to nothing.
    """
    apart, counts = squares.numpy(), weights.numpy()  # NumPy takes a fifth of the time of torch here
    shares = counts / counts.sum()
    for _ in range(iterations):
        spread = apart @ shares
        distances = np.sqrt(np.maximum(spread - 0.5 * (shares @ spread), 0))
        pulled = counts / np.maximum(distances, smoothing)
        before, shares = shares, pulled / pulled.sum()
        if np.abs(shares - before).sum() <= CONVERGED:
            break
    return torch.from_numpy(shares)


@dataclass(frozen=True)
class GeometricMedian(MatrixRule):
    """Takes the geometric median: the point with the smallest sum of distances to all updates."""

    iterations: int = 100
    smoothing: float = 1e-5  # smaller distances count as this

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise SpecError(f"iterations must be at least 1, got {self.iterations}; 100 is usual")
        if not 0 < self.smoothing < torch.inf:
            raise SpecError(f"smoothing must be > 0, got {self.smoothing:g}; 1e-5 is usual")

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`."""
        products = gram(updates.rows)
        norms = products.diagonal().sqrt()
        # a very distant point does not change the median, but costs all others numerical precision
        factors = shortening(norms, FAR * median(norms))
        squares = squared_distances(products * factors[:, None] * factors[None, :])
        shares = factors * weiszfeld(squares, updates.weights, self.iterations, self.smoothing)
        return weighted(state, updates, shares, products)
