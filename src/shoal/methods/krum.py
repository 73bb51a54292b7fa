"""Krum and Multi-Krum: follow the updates that lie among the most others.

Blanchard, El Mhamdi, Guerraoui, Stainer: Machine Learning with Adversaries: Byzantine Tolerant Gradient
Descent, NeurIPS 2017, section 4.

    s_i = sum of ||D_i - D_j||^2 over the n - f - 2 updates nearest to D_i      -> `parts.robust.krum_scores`
    Krum:        w <- w + D_k,                         s_k smallest             -> `parts.robust.Krum`
    Multi-Krum:  w <- w + mean of the m updates with the smallest s             -> `parts.robust.MultiKrum`

f is the number of attackers that are expected; n > 2 f + 2.

Departures: D_i is the change by local training, not one gradient. f may be a share of the cohort. m is n - f
unless it is given. Where replies are lost in a round and n is too small for f, the round goes on with the
largest f that n allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.core.method import Recipe
from shoal.methods.fedavg import FedAvg
from shoal.parts import robust
from shoal.parts.local import Sgd


@dataclass(frozen=True)
class Krum(Recipe):
    """Takes the one update whose nearest neighbours are nearest."""

    f: float = robust.Krum.f
    local: Sgd = field(default_factory=Sgd)

    def __post_init__(self) -> None:
        robust.Krum(self.f)  # refuses a bad f at once

    def method(self) -> FedAvg:
        """See `Recipe`."""
        return FedAvg(local=self.local, weights="uniform", aggregator=robust.Krum(self.f))


@dataclass(frozen=True)
class MultiKrum(Recipe):
    """Averages the updates that Krum likes best."""

    f: float = robust.MultiKrum.f
    m: int | None = robust.MultiKrum.m
    local: Sgd = field(default_factory=Sgd)

    def __post_init__(self) -> None:
        robust.MultiKrum(self.f, self.m)  # refuses bad values at once

    def method(self) -> FedAvg:
        """See `Recipe`."""
        return FedAvg(local=self.local, weights="uniform", aggregator=robust.MultiKrum(self.f, self.m))
