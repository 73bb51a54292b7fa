"""FedBN: normalisation layers stay at the clients.

Li, Jiang, Zhang, Kamp, Dou: FedBN: Federated Learning on Non-IID Features via Local Batch Normalization,
ICLR 2021, Algorithm 1.

    client i:  replace all but its own BatchNorm layers by the server's, train     -> `FedBN.local_model`
    server:    average all but the BatchNorm layers                                -> `aggregators.mean.Mean`

A BatchNorm layer's scale, shift and statistics never leave the client: they are its memory. These layers
are found by type, not by name. Without such layers FedBN is FedAvg with uniform weights, to the bit; with
them there is no global model, and every client is evaluated with its own.

Departures: none. A client that has not taken part yet has the initial values of its BatchNorm layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.averaging import Averaged, AveragingMethod
from shoal.aggregators.mean import Mean
from shoal.core.data import Data
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.training import Course, Start
from shoal.core.types import Acc, Cohort, Context, Metrics, ModelMessage, ModelUpdate, Moment, Reply, Weights
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


class FedBNState(NamedTuple):
    """The server state: the shared layers, and whether they are the whole model."""

    averaged: Averaged
    complete: bool

    @property
    def model(self) -> Weights:
        """The shared layers."""
        return self.averaged.model


@dataclass(frozen=True)
class FedBN(AveragingMethod):
    """Averages all layers except BatchNorm, which every client keeps for itself."""

    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "uniform"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def init(self, task: Task, key: Key) -> FedBNState:
        """See `Method`."""
        return FedBNState(self.averaging.init(shared_part(task, task.init(key))), not task.batch_norms)

    def serve(self, state: FedBNState, cohort: Cohort) -> ModelMessage:
        """See `Method`."""
        return ModelMessage(state.model)

    def begin(self, state: FedBNState, cohort: Cohort) -> Acc:
        """See `Method`."""
        return self.averaging.begin(state.averaged, cohort)

    def fold(self, acc: Acc, client: int, sent: Any, reply: Reply) -> Acc:
        """See `Method`."""
        return self.averaging.fold(acc, client, sent.model, reply.payload.update, reply)

    def finish(self, task: Task, state: FedBNState, acc: Acc, moment: Moment) -> tuple[FedBNState, Metrics]:
        """See `Method`."""
        averaged, metrics = self.averaging.finish(task, state.averaged, acc, moment)
        return state._replace(averaged=averaged), metrics

    def model(self, state: FedBNState) -> Weights | None:
        """See `Method`."""
        return state.model if state.complete else None

    def models(self, state: FedBNState) -> dict[str, Weights]:
        """See `Method`."""
        return {"": state.model}

    def client_init(self, task: Task, key: Key) -> Weights:
        """See `Method`."""
        return own_part(task, task.init(key))

    def client_training(
        self, task: Task, memory: Weights, message: Any, data: Data, context: Context
    ) -> Course:
        """See `Training`."""
        start = self.local_model(memory, message)
        trained = yield Start(start, self.terms)
        update = shared_part(task, trained.update(start))
        reply = Reply(ModelUpdate(update), data.weight, {"train_loss": trained.loss})
        return own_part(task, trained.weights), reply

    def local_model(self, memory: Weights, message: Any) -> Weights:
        """See `Method`."""
        shared: Weights = message.model
        if not memory.params and not memory.buffers:
            return shared
        return Weights({**shared.params, **memory.params}, {**shared.buffers, **memory.buffers})


def own_part(task: Task, weights: Weights) -> Weights:
    """The BatchNorm layers."""
    return _pick(task, weights, own=True)


def shared_part(task: Task, weights: Weights) -> Weights:
    """All other layers."""
    return _pick(task, weights, own=False)


NOTHING = Weights({}, {})


def _pick(task: Task, weights: Weights, *, own: bool) -> Weights:
    norms = set(task.batch_norms)
    if not norms:
        return NOTHING if own else weights
    params, buffers = (
        {name: value for name, value in part.items() if (name.rpartition(".")[0] in norms) == own}
        for part in weights
    )
    return Weights(params, buffers)
