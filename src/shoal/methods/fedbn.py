"""FedBN: BatchNorm layers stay at the clients.

Li, Jiang, Zhang, Kamp, Dou: FedBN: Federated Learning on Non-IID Features via Local Batch Normalization,
ICLR 2021, Algorithm 1.

    client i:  replace all but its own BatchNorm layers by the server's, train     -> `SharedLayers`
    server:    average all but the BatchNorm layers                                -> `aggregators.mean.Mean`

A BatchNorm layer's scale, shift and statistics never leave the client: they are its memory. These layers
are found by type, not by name. Without such layers FedBN is FedAvg with uniform weights, bit for bit; with
them there is no global model, and every client is evaluated with its own model.

Departures: none. The BatchNorm layers of a client that has not taken part yet have their initial values.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.mean import Mean
from shoal.core.method import Recipe
from shoal.core.term import Term
from shoal.methods.shared_layers import SharedLayers
from shoal.parts.layers import AllButBatchNorm
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


@dataclass(frozen=True)
class FedBN(Recipe):
    """Averages all layers except BatchNorm, which every client keeps for itself."""

    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "uniform"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def method(self) -> SharedLayers:
        """See `Recipe`."""
        return SharedLayers(
            AllButBatchNorm(), self.local, self.weights, self.terms, self.aggregator, self.server
        )
