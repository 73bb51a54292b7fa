"""Norm clipping: averages updates after clipping their norms.

Sun, Kairouz, Suresh, McMahan: Can You Really Backdoor Federated Learning?, 2019, section 4 (norm
thresholding).

    w <- w + sum_i a_i D_i min(1, c / ||D_i||) / sum_i a_i        -> `clipped_shares`

Departures: by default c is the median norm of the round's updates, because the right number depends on model,
data and round. The noise that the paper adds is not part of this method. a_i is 1 unless
`weights = "samples"`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from shoal.aggregators.matrix import Decision, MatrixRule, UpdateMatrix, gram, median, shortening, weighted
from shoal.core.errors import SpecError


def clipped_shares(norms: Tensor, weights: Tensor, clip: float | None) -> Tensor:
    """[n] float64: the weight of each update in the mean after clipping norms to `clip`.

    By default `clip` is the median of the norms.
    """
    limit = median(norms) if clip is None else clip
    return weights / weights.sum() * shortening(norms, limit)


@dataclass(frozen=True)
class ClippedMean(MatrixRule):
    """Averages updates after clipping their norms."""

    clip: float | None = None  # the largest norm of an update; by default the median norm of the round

    def __post_init__(self) -> None:
        if self.clip is not None and not self.clip > 0:
            raise SpecError(f"clip must be > 0, got {self.clip:g}; leave it out for the round's median norm")

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`."""
        products = gram(updates.rows)
        shares = clipped_shares(products.diagonal().sqrt(), updates.weights, self.clip)
        return weighted(state, updates, shares, products)
