"""FedAvg: clients train the global model on their own samples, the server averages the results.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017, Algorithm 1.

    client i:  w_i = E epochs of SGD from w on its samples          -> `core.training.Training`
    server:    w <- sum_i (n_i / sum_j n_j) w_i                     -> `aggregators.mean.Mean`

Many methods differ from it in one part, and each part is a slot: loss terms (FedProx, FedNTD), the solver,
the aggregator (Krum, the median), the server optimizer (FedAvgM, FedAdam).

Departures: none in the algorithm. Clients return `w_i - w` instead of `w_i`, and the server adds the mean
of these to w in float64. With `weights = "uniform"` all clients have equal weight.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.averaging import AveragingMethod
from shoal.aggregators.mean import Mean
from shoal.core.term import Term
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


@dataclass(frozen=True)
class FedAvg(AveragingMethod):
    """Averages the models that clients train on their own samples."""

    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)
