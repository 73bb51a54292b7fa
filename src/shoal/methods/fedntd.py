"""FedNTD: clients preserve the global model's predictions for the classes other than the true one.

Lee, Jeong, Shin, Bae, Yun: Preservation of the Global Knowledge by Not-True Distillation in Federated
Learning, NeurIPS 2022.

        client i:  minimises  CE(z, y) + beta tau^2 KL(q^g || q)              -> `terms.not_true.NotTrue`
               z and z^g are the logits of its own model and of the one that it was sent; q is the softmax of
               z / tau over all classes but the true one, q^g that of z^g / tau
    server:    as FedAvg

Local training makes a model forget the classes that its client does not hold. The cross entropy trains the
true class; the term only preserves the proportions among the other classes. With two classes the term is 0.

Departures: none in the loss; the divergence is averaged over the mini-batch. The sent model runs in
evaluation mode, which the authors' code leaves open. Their training settings (momentum 0.9, weight decay
1e-5, learning rate times 0.99 per round) belong to `[local]`.
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
    """FedAvg with distillation of the global model's predictions for all classes but the true one."""

    beta: float = 1.0
    tau: float = 1.0
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        NotTrue(self.beta, self.tau)  # checks the values

    def method(self) -> FedAvg:
        """See `Recipe`."""
        terms = (NotTrue(self.beta, self.tau),)
        return FedAvg(self.local, self.weights, terms, self.aggregator, self.server)
