"""FedCPA: an update is normal if it treats the same parameters as important as the others do.

Han, Park, Wu, Kim, Zhu, Xie, Cha: Towards Attack-tolerant Federated Learning via Critical Parameter Analysis,
ICCV 2023, section 3.

    c_i = |(w_i - w) w_i|, number by number, over all matrices
    T_i, B_i = the places of its largest and its smallest 1 %                   -> `parts.critical.critical`
    s_ij = mean over T and B of (Pearson(c_i, c_j on the common places) + 1) / 2
           + mean over T and B of |common places| / |places of either|          -> `parts.critical.likeness`
    s_i = mean_j s_ij + the same between c_i and c = |(w - w_before) w|
    a_i = s_i stretched to [0.01, 0.99], logit + 0.5, cut to [0, 1]             -> `parts.critical.normality`
    w <- w + mean of a_i (w_i - w) over those with a_i > 0        -> `parts.critical.CriticalParameters`

Departures: where the text leaves a choice this follows the authors' code: Pearson's correlation, and a mean
that is not divided by the sum of a_i. In the first round the mean of the updates stands for w - w_before.
With fewer than two places in common the correlation counts 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.core.method import Recipe
from shoal.methods.fedavg import FedAvg
from shoal.parts.critical import CriticalParameters
from shoal.parts.local import Sgd


@dataclass(frozen=True)
class FedCPA(Recipe):
    """Weighs clients by how normal their most and least important parameters are."""

    share: float = CriticalParameters.share
    local: Sgd = field(default_factory=Sgd)

    def __post_init__(self) -> None:
        CriticalParameters(self.share)  # refuses a bad share at once

    def method(self) -> FedAvg:
        """See `Recipe`."""
        return FedAvg(local=self.local, weights="uniform", aggregator=CriticalParameters(self.share))
