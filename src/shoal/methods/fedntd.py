"""FedNTD: clients keep what the global model knows of the classes that their samples are not of.

Lee, Jeong, Shin, Bae, Yun: Preservation of the Global Knowledge by Not-True Distillation in Federated
Learning, NeurIPS 2022.

    client i:  descends  CE(z, y) + beta tau^2 KL(q^g || q)                    -> `terms.not_true.NotTrue`
               z and z^g are the logits of its own model and of the one that it was sent; q is the softmax of
               z / tau over all classes but the true one, q^g that of z^g / tau
    server:    as FedAvg

Local training makes a model forget the classes that its client does not hold. The true class is left to
the cross entropy; only the proportions among the others are held fast. With two classes there is nothing to
hold, and the term is 0.

Departures: none in the loss; the divergence is the mean over the batch. The sent model is run in evaluation
mode, which the authors' code leaves open. Their training recipe (momentum 0.9, weight decay 1e-5, learning
rate times 0.99 a round) belongs to `[local]`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.mean import Mean
from shoal.core.method import Recipe
from shoal.methods.fedavg import FedAvg
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd
from shoal.terms.not_true import NotTrue


@dataclass(frozen=True)
class FedNTD(Recipe):
    """Distils the global model's view of the classes that a sample is not of."""

    beta: float = 1.0
    tau: float = 1.0
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        NotTrue(self.beta, self.tau)  # refuses bad values at once

    def method(self) -> FedAvg:
        """See `Recipe`."""
        terms = (NotTrue(self.beta, self.tau),)
        return FedAvg(self.local, self.weights, terms, self.aggregator, self.server)
