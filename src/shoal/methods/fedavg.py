"""FedAvg: every client trains the global model on its own samples, the server averages.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017, Algorithm 1.

    client i:  w_i = E epochs of SGD from w on its samples          -> `parts.training.Training`
    server:    w <- sum_i (n_i / sum_j n_j) w_i                     -> `parts.aggregators.Mean`

Its slots make the methods that differ from it in one place: loss terms (FedProx, FedNTD), the solver, the
aggregator.

Departures: none in the algorithm. Clients return `w_i - w` instead of `w_i`, and the server adds the mean
of these to w in float64. With `weights = "uniform"` every client counts alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.types import (
    Acc,
    Cohort,
    Metrics,
    Reply,
    Weights,
)
from shoal.parts.aggregators import Aggregator, Mean, Weighting, client_weight, client_weights
from shoal.parts.local import Sgd
from shoal.parts.terms import Term
from shoal.parts.training import Training


class FedAvgState(NamedTuple):
    """What the server remembers."""

    model: Weights
    aggregator: Any


@dataclass(frozen=True)
class FedAvg(Training):
    """Averages the models that clients train on their own samples."""

    maps: ClassVar[bool] = True

    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)

    def check(self, task: Task) -> None:
        """See `Method`."""
        for term in self.terms:
            term.check(task)

    def init(self, task: Task, key: Key) -> FedAvgState:
        """See `Method`."""
        model = task.init(key)
        return FedAvgState(model, self.aggregator.init(model))

    def begin(self, state: FedAvgState, cohort: Cohort) -> Acc:
        """See `Method`."""
        return self.aggregator.begin(state.aggregator, state.model, cohort)

    def fold(self, acc: Acc, client: int, sent: Any, reply: Reply) -> Acc:
        """See `Method`."""
        weight = client_weight(self.weights, reply)
        return self.aggregator.fold(acc, client, sent.model, reply.payload.update, weight)

    def fold_block(self, acc: Acc, clients: tuple[int, ...], sent: Any, reply: Reply) -> Acc:
        """See `Method`."""
        weights = client_weights(self.weights, reply)
        return self.aggregator.fold_block(acc, clients, sent.model, reply.payload.update, weights)

    def finish(self, task: Task, state: FedAvgState, acc: Acc, key: Key) -> tuple[FedAvgState, Metrics]:
        """See `Method`."""
        kept, model, metrics = self.aggregator.finish(state.aggregator, acc)
        return FedAvgState(model, kept), metrics
