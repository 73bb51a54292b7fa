"""CluSamp: FedAvg with clients drawn from clusters, so that every cohort represents the population.

Fraboni, Vidal, Kameni, Lorenzi: Clustered Sampling: Low-Variance and Improved Representativity for Clients
Selection in Federated Learning, ICML 2021.

    select:    one client from each of m distributions W_k with mean_k W_k[i] = n_i / M
                                                                       -> `selectors.clustered.Clustered`
    server:    w <- (1 / m) sum_k w_{i_k}                              -> `aggregators.mean.Mean`

Sampling already favours clients with many samples, so the mean must not do so again: with uniform weights it
is an unbiased estimate of sum_i (n_i / M) w_i. A client drawn twice trains once and counts twice.

Departures: see the selector, which works with any method. The FedQP paper's baseline of this name weights the
mean by samples, which counts them twice; `weights = "samples"` does that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.mean import Mean
from shoal.core.method import Recipe
from shoal.core.term import Term
from shoal.methods.fedavg import FedAvg
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


@dataclass(frozen=True)
class CluSamp(Recipe):
    """Samples clients from clusters of similar clients and averages their models with equal weights."""

    selector: ClassVar[str] = "clustered"

    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "uniform"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def method(self) -> FedAvg:
        """See `Recipe`."""
        return FedAvg(self.local, self.weights, self.terms, self.aggregator, self.server)
