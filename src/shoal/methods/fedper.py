"""FedPer: the last layers stay at the clients.

Arivazhagan, Aggarwal, Singh, Choudhary: Federated Learning with Personalization Layers, 2019, Algorithms 1
and 2.

    client i:  w = (base layers from the server, own personalization layers); train both
               send the update of the base layers, keep the others                -> `SharedLayers`
    server:    average the base layers by samples                                 -> `aggregators.mean.Mean`

Departures: none in the algorithm. All clients start with the same personalization layers; in the paper each
client draws its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.mean import Mean
from shoal.core.errors import SpecError
from shoal.core.method import Recipe
from shoal.core.term import Term
from shoal.methods.shared_layers import SharedLayers
from shoal.parts.layers import AllButLast
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


@dataclass(frozen=True)
class FedPer(Recipe):
    """Averages all layers except the last ones, which every client keeps for itself."""

    layers: int = 1  # linear layers or convolutions that stay at the client, counted from the last
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        if self.layers < 0:
            raise SpecError(f"layers must be at least 0, got {self.layers}; 1 keeps the classifier")

    def method(self) -> SharedLayers:
        """See `Recipe`."""
        kept = AllButLast(self.layers)
        return SharedLayers(kept, self.local, self.weights, self.terms, self.aggregator, self.server)
