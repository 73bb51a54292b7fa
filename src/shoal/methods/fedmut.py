"""FedMut: every client gets a different mutation of the global model, half forward and half backward.

Hu, Cao, Li, Liu, Wei, Chen: FedMut: Generalized Federated Learning via Stochastic Mutation, AAAI 2024.

    delta = w_r - w_{r-1}, the last step of the global model
    c_r = acc (1 - min(r / bound, 1))                                     -> `FedQP._acceleration`
        for each tensor: the K models in random pairs, with v = +1 for one and v = -1 + c_r for the other
                                                                          -> `parts.mutation.Mutation.draw`
    client j:  trains from w_r + alpha v_j delta                          -> `parts.mutation.Mutants`
    server:    w_{r+1} = mean of the trained models                       -> `aggregators.mean.Mean`

It is FedQP without projections (p = 0). From round `bound` on, the mutations of each tensor cancel: the mean
of the models sent is the global model.

Departures: the authors' code also mutates buffers, which makes running variances negative; here buffers are
left to the aggregator. In c_r it counts rounds from 0; here the first mutation has r = 1. In a cohort of odd
size, a random client gets the model without a mutation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.mean import Mean
from shoal.core.method import Recipe
from shoal.core.term import Term
from shoal.methods.fedqp import FedQP
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


@dataclass(frozen=True)
class FedMut(Recipe):
    """Sends each client the global model, mutated forward or backward along its last step."""

    alpha: float = 4.0
    acc: float = 0.3
    bound: int = 50
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "uniform"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        self.method()  # checks the values

    def method(self) -> FedQP:
        """See `Recipe`."""
        return FedQP(
            local=self.local,
            weights=self.weights,
            alpha=self.alpha,
            acc=self.acc,
            bound=self.bound,
            p=0.0,
            terms=self.terms,
            aggregator=self.aggregator,
            server=self.server,
        )
