"""Norm clipping: no update counts for more than its length allows.

Sun, Kairouz, Suresh, McMahan: Can You Really Backdoor Federated Learning?, 2019, section 4 (norm
thresholding).

    w <- w + sum_i a_i D_i min(1, c / ||D_i||) / sum_i a_i        -> `parts.robust.clipped_shares`

Departures: without a number, c is the median norm of the round's updates, because the right number depends on
model, data and round. The noise that the paper adds on top is not part of this method. a_i is 1 unless
`weights = "samples"`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.core.method import Recipe
from shoal.methods.fedavg import FedAvg
from shoal.parts.aggregators import Weighting
from shoal.parts.local import Sgd
from shoal.parts.robust import ClippedMean


@dataclass(frozen=True)
class NormClip(Recipe):
    """Averages updates whose norms are limited."""

    clip: float | None = ClippedMean.clip
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "uniform"

    def __post_init__(self) -> None:
        ClippedMean(self.clip)  # refuses a bad value at once

    def method(self) -> FedAvg:
        """See `Recipe`."""
        return FedAvg(local=self.local, weights=self.weights, aggregator=ClippedMean(self.clip))
