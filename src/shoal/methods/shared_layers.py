"""Shared layers: some layers are averaged, and every client keeps the others for itself.

FedBN, FedPer, FedFina, the fixed form of FedLG and GENE-FL's form of PartialFed differ only in the choice of
the shared layers; the choices are in `parts.layers`.

    client i:  w = (shared layers from the server, own other layers); train     -> `SharedLayers.local_model`
               send the update of the shared layers, keep the others
    server:    average the shared layers                                        -> `aggregators.mean.Mean`

The own layers of a client that has not taken part yet have their initial values. If all layers are shared,
this is FedAvg, bit for bit; if not, there is no global model, and every client is evaluated with its own.

Departures: see the methods that use it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.averaging import Averaged, AveragingMethod
from shoal.aggregators.mean import Mean
from shoal.core.data import Data
from shoal.core.key import Key
from shoal.core.method import Axes
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.training import Course, Start, check_training
from shoal.core.types import Acc, Cohort, Context, Metrics, ModelMessage, ModelUpdate, Moment, Reply, Weights
from shoal.parts.layers import AllButBatchNorm, LayerChoice, joined, other_layers, some_layers
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


class SharedLayersState(NamedTuple):
    """The server state: the shared layers, and whether they are the whole model."""

    averaged: Averaged
    complete: bool

    @property
    def model(self) -> Weights:
        """The shared layers."""
        return self.averaged.model


class SharedLayersMethod(AveragingMethod):
    """A method whose server averages a choice of layers, and whose clients keep the others."""

    choice: LayerChoice

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        check_training(self.local, self.terms, task)
        self.averaging.check(task, axes)
        self.choice.names(task)

    def init(self, task: Task, key: Key) -> SharedLayersState:
        """See `Method`."""
        shared = some_layers(task.init(key), self.choice.names(task))
        return SharedLayersState(self.averaging.init(shared), len(shared.params) == len(task.shapes))

    def serve(self, state: SharedLayersState, cohort: Cohort) -> ModelMessage:
        """See `Method`."""
        return ModelMessage(state.model)

    def begin(self, state: SharedLayersState, cohort: Cohort) -> Acc:
        """See `Method`."""
        return self.averaging.begin(state.averaged, cohort)

    def finish(
        self, task: Task, state: SharedLayersState, acc: Acc, moment: Moment
    ) -> tuple[SharedLayersState, Metrics]:
        """See `Method`."""
        averaged, metrics = self.averaging.finish(task, state.averaged, acc, moment)
        return state._replace(averaged=averaged), metrics

    def model(self, state: SharedLayersState) -> Weights | None:
        """See `Method`."""
        return state.model if state.complete else None

    def models(self, state: SharedLayersState) -> dict[str, Weights]:
        """See `Method`."""
        return {"": state.model}

    def client_init(self, task: Task, key: Key) -> Weights:
        """See `Method`."""
        return other_layers(task.init(key), self.choice.names(task))

    def local_model(self, memory: Weights, message: Any) -> Weights:
        """See `Method`."""
        return joined(message.model, memory)


@dataclass(frozen=True)
class SharedLayers(SharedLayersMethod):
    """Averages a choice of layers; every client keeps the others for itself."""

    choice: LayerChoice = field(default_factory=AllButBatchNorm)
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def client_training(
        self, task: Task, memory: Weights, message: Any, data: Data, context: Context
    ) -> Course:
        """See `Training`."""
        start, names = self.local_model(memory, message), self.choice.names(task)
        trained = yield Start(start, self.terms)
        update = some_layers(trained.update(start), names)
        reply = Reply(ModelUpdate(update), data.weight, {"train_loss": trained.loss})
        return other_layers(trained.weights, names), reply
