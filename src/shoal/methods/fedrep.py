"""FedRep: clients share a representation, and each has its own head; the two are trained in turn.

Collins, Hassani, Mokhtari, Shakkottai: Exploiting Shared Representations for Personalized Federated
Learning, ICML 2021, Algorithm 1.

    client i:  h_i <- SGD on its head, with the representation as sent     -> `parts.submodels.head_task`
               phi_i <- SGD on the representation, with the head h_i       -> `parts.submodels.body_task`
               sends the update of phi, keeps h_i
    server:    phi <- mean of phi_i                                        -> `SharedLayersMethod`

Of the epochs of `[local]`, the last `body_epochs` train the representation, and the ones before them train
the head. The head is the last linear layer.

Departures: none in the algorithm; the authors' code divides the epochs in the same way. The representation
does not change while the head is trained, so its features are computed once, in evaluation mode. All heads
start with the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.mean import Mean
from shoal.core.data import Data
from shoal.core.errors import SpecError
from shoal.core.method import Axes, Recipe
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.training import Course, Start, check_training
from shoal.core.types import Context, ModelUpdate, Reply, Weights
from shoal.methods.shared_layers import SharedLayersMethod
from shoal.parts.layers import AllButLast, LayerChoice, joined, other_layers, some_layers
from shoal.parts.submodels import body_task, features_data, head_task, some_epochs
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


@dataclass(frozen=True)
class HeadFirst(SharedLayersMethod):
    """Shares all layers but the last; each client trains its own last layer first, then the others."""

    choice: LayerChoice
    body_epochs: int
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        check_training(self.local, self.terms, task)
        self.averaging.check(task, axes)
        task.check_head("fedrep")
        self.choice.names(task)

    def client_training(
        self, task: Task, memory: Weights, message: Any, data: Data, context: Context
    ) -> Course:
        """See `Training`."""
        start, last = self.local_model(memory, message), task.last or ""
        if self._head_epochs:  # on features of the representation as sent
            steps = some_epochs(features_data(task, start, data), 0, self._head_epochs, self.local.epochs)
            head = {name.removeprefix(last): start.params[name] for name in task.head_names}
            trained = yield Start(Weights(head, {}), task=head_task(task), data=steps)
            own = {f"{last}{name}": value for name, value in trained.weights.params.items()}
            start = joined(start, Weights(own, {}))
        steps = some_epochs(data, self._head_epochs, self.local.epochs, self.local.epochs)
        trained = yield Start(start, self.terms, task=body_task(task), data=steps, only_update=True)
        names = self.choice.names(task)
        update = some_layers(trained.update(start), names)
        reply = Reply(ModelUpdate(update), data.weight, {"train_loss": trained.loss})
        return other_layers(start, names), reply

    @property
    def _head_epochs(self) -> int:
        return self.local.epochs - self.body_epochs


@dataclass(frozen=True)
class FedRep(Recipe):
    """Averages all layers but the last; each client trains its own last layer first, then the others."""

    body_epochs: int = 1  # epochs of [local] that train the representation; the others train the head
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        if not 1 <= self.body_epochs <= self.local.epochs:
            raise SpecError(
                f"body_epochs must be 1 to {self.local.epochs}, the epochs of [local], "
                f"got {self.body_epochs}; the epochs before them train the head"
            )

    def method(self) -> HeadFirst:
        """See `Recipe`."""
        slots = (self.local, self.weights, self.terms, self.aggregator, self.server)
        return HeadFirst(AllButLast(1), self.body_epochs, *slots)
