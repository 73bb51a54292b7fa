"""FedFina: only the last convolutions are exchanged.

A baseline of Guo, Lv, Wang, Geng: GENE-FL: Gene-Driven Parameter-Efficient Dynamic Federated Learning,
section IV: "the last four convolution layers of the model". Its traffic on ResNet-18 is that of the four
3 x 3 convolutions of the last stage, 8,257,536 parameters, in each direction.

    client i:  w = (last convolutions from the server, own other layers); train          -> `SharedLayers`
    server:    average the last convolutions                                             -> `LastStage`

Departures: the paper describes it in one sentence and gives no reference. For other models the last
stage is found by its width (`parts.layers.LastStage`), or given by name in `layers`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.mean import Mean
from shoal.core.method import Recipe
from shoal.core.term import Term
from shoal.methods.shared_layers import SharedLayers
from shoal.parts.layers import LastStage, Matching
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


@dataclass(frozen=True)
class FedFina(Recipe):
    """Averages the last convolutions only; every client keeps all other layers for itself."""

    layers: tuple[str, ...] = ()  # names of the shared layers, `*` matches any text; default: the last stage
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def method(self) -> SharedLayers:
        """See `Recipe`."""
        choice = Matching(self.layers) if self.layers else LastStage()
        return SharedLayers(choice, self.local, self.weights, self.terms, self.aggregator, self.server)
