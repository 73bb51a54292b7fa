"""The geometric median: the point whose distances to all updates have the smallest sum.

Pillutla, Kakade, Harchaoui: Robust Aggregation for Federated Learning, IEEE Transactions on Signal Processing
70, 2022 (RFA), Algorithm 2.

    z <- argmin_z sum_i a_i ||z - D_i||,  by smoothed Weiszfeld steps:
    b_i = a_i / max(nu, ||z - D_i||),   z <- sum_i b_i D_i / sum_i b_i          -> `parts.robust.weiszfeld`
    w <- w + z

Departures: the paper stops after a few steps, because each is a round of secure aggregation; this server
has all updates, computes with their distances alone, and goes on until nothing changes, `iterations` at most.
An update longer than a million times the median is shortened to that: the median hardly depends on how far
away a point is, and digits would be lost. a_i is 1 unless `weights = "samples"`, the paper's choice: a
number of samples is only a claim.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.core.method import Recipe
from shoal.methods.fedavg import FedAvg
from shoal.parts.aggregators import Weighting
from shoal.parts.local import Sgd
from shoal.parts.robust import GeometricMedian


@dataclass(frozen=True)
class GeoMedian(Recipe):
    """Moves to the geometric median of the clients' models."""

    iterations: int = GeometricMedian.iterations
    smoothing: float = GeometricMedian.smoothing
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "uniform"

    def __post_init__(self) -> None:
        GeometricMedian(self.iterations, self.smoothing)  # refuses bad values at once

    def method(self) -> FedAvg:
        """See `Recipe`."""
        rule = GeometricMedian(self.iterations, self.smoothing)
        return FedAvg(local=self.local, weights=self.weights, aggregator=rule)
