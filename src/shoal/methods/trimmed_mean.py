"""Trimmed mean and median: every coordinate for itself, without its extremes.

Yin, Chen, Ramchandran, Bartlett: Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates,
ICML 2018, Algorithm 1, options I and II.

    median:        w_p <- w_p + median of D_1p ... D_np                          -> `parts.robust.Median`
    trimmed mean:  w_p <- w_p + mean of D_1p ... D_np without the b smallest and
                   the b largest                                                 -> `parts.robust.trimmed`

The median is the trimmed mean that drops all but the middle one or two.

Departures: D_i is the change by local training, not a gradient. The paper's b is a share beta of all clients;
`trim` may be that or a number.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.core.method import Recipe
from shoal.methods.fedavg import FedAvg
from shoal.parts import robust
from shoal.parts.local import Sgd


@dataclass(frozen=True)
class TrimmedMean(Recipe):
    """Averages each coordinate without its smallest and largest values."""

    trim: float = robust.TrimmedMean.trim
    local: Sgd = field(default_factory=Sgd)

    def __post_init__(self) -> None:
        robust.TrimmedMean(self.trim)  # refuses a bad value at once

    def method(self) -> FedAvg:
        """See `Recipe`."""
        return FedAvg(local=self.local, weights="uniform", aggregator=robust.TrimmedMean(self.trim))


@dataclass(frozen=True)
class Median(Recipe):
    """Takes the median of each coordinate."""

    local: Sgd = field(default_factory=Sgd)

    def method(self) -> FedAvg:
        """See `Recipe`."""
        return FedAvg(local=self.local, weights="uniform", aggregator=robust.Median())
