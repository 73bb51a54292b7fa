"""FedLG: clients upload only the layers that gradients move least, the learnGene.

A baseline of Guo, Lv, Wang, Geng: GENE-FL: Gene-Driven Parameter-Efficient Dynamic Federated Learning. It
federates Wang, Yang, Lin, Geng: Learngene: Inheriting Condensed Knowledge from the Ancestry Model to
Descendant Models, 2023, where a layer whose gradients are rarely large is taken for general knowledge.

    layer l:   a_l = share of its numbers that training moves by more than 0.0005      -> `parts.layer_scores`
    client:    sends the layers with the smallest a_l within the budget                -> `Gene`
    server:    averages each layer over the clients that sent it                       -> `aggregators.mean`

With `layers`, the learnGene is fixed by name, as in Learngene's released extractor, and only these layers are
sent, in both directions: GENE-FL's traffic on ResNet-18, 4,792,320 parameters, is that of two 3 x 3
convolutions of 512 channels and 73,728 parameters more.

Departures: Learngene counts gradients over the whole training, with their sign; here the change over one
round is counted, regardless of its sign. GENE-FL does not say which layers it sends.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.aggregators.aggregator import Weighting
from shoal.core.method import Recipe
from shoal.core.term import Term
from shoal.methods.gene import Gene
from shoal.methods.shared_layers import SharedLayers
from shoal.parts.layers import Matching
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


@dataclass(frozen=True)
class FedLG(Recipe):
    """Clients send only the layers that training changes least, within a budget of bytes."""

    budget: float = 0.43  # largest share of the model's bytes that a client sends
    layers: tuple[str, ...] = ()  # names of the layers to send instead, `*` matches any text
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "uniform"
    terms: tuple[Term, ...] = ()
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        self.method()  # checks the values

    def method(self) -> Gene | SharedLayers:
        """See `Recipe`."""
        common = {"local": self.local, "weights": self.weights, "terms": self.terms, "server": self.server}
        if self.layers:
            return SharedLayers(Matching(self.layers), **common)  # type: ignore[arg-type]
        return Gene(0.0, 0.0, score="activity", budget=self.budget, head=True, **common)  # type: ignore[arg-type]
