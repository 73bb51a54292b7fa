"""PartialFed: clients load only some layers of the global model and keep their own for the rest.

Sun, Huo, Yang, Bai: PartialFed: Cross-Domain Personalized Federated Learning via Partial Initialization,
NeurIPS 2021.

    server:    w <- mean of the clients' whole models, sent whole                 -> `aggregators.mean.Mean`
    client i:  starts from w in the layers that it loads, from its own last model in the others; trains
    fix:       the layers to load are named, the same for all clients             -> `PartialLoading`
    adaptive:  each client learns which: with s_l for layer l, one gradient step a round on the loss of
               sigmoid(s_l) w_l + (1 - sigmoid(s_l)) own_l; it loads where s_l >= 0  -> `next_logits`

With all layers loaded it is FedAvg, bit for bit. `upload = "loaded"` is what GENE-FL calls ParFed: only the
loaded layers are sent, in both directions; on ResNet-18 `layer*.1.conv1.weight`, 3,133,440 parameters.

Departures: the paper samples the adaptive choice with Gumbel noise and alternates its training with the
model's; here the choice is the sign of s_l, which is trained by one pass over the client's samples before
each local training. By default a client loads all layers but the last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.averaging import AveragingMethod
from shoal.aggregators.mean import Mean
from shoal.core.data import Data
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.method import Axes, Recipe
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.training import Course, Start, check_training
from shoal.core.types import Context, ModelUpdate, Reply, Weights
from shoal.methods.shared_layers import SharedLayers
from shoal.parts.layers import AllButLast, LayerChoice, Matching, joined, some_layers, update_beyond
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


class PartialMemory(NamedTuple):
    """A client's memory: its last model, and a logit s for each layer, which is loaded if s >= 0."""

    model: Weights
    logits: Tensor  # [layers] float64, s


@dataclass(frozen=True)
class PartialLoading(AveragingMethod):
    """Sends whole models in both directions; a client loads only some layers."""

    choice: LayerChoice
    adaptive: bool
    rate: float
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        check_training(self.local, self.terms, task)
        self.averaging.check(task, axes)
        self.choice.names(task)

    def client_init(self, task: Task, key: Key) -> PartialMemory:
        """See `Method`."""
        loaded = set(self.choice.names(task))
        signs = [0.0 if self.adaptive else 1.0 if name in loaded else -1.0 for name in task.shapes]
        return PartialMemory(task.init(key), torch.tensor(signs, dtype=torch.float64))

    def local_model(self, memory: PartialMemory, message: Any) -> Weights:
        """See `Method`."""
        return joined(memory.model, some_layers(message.model, _loaded(memory)))

    def client_training(
        self, task: Task, memory: PartialMemory, message: Any, data: Data, context: Context
    ) -> Course:
        """See `Training`."""
        if self.adaptive:
            memory = memory._replace(logits=next_logits(task, memory, message.model, data, self.rate))
        start = self.local_model(memory, message)
        trained = yield Start(start, self.terms)
        own = trained.weights
        change = trained.update(start).params
        payload = ModelUpdate(update_beyond(message.model, own, change, _loaded(memory)))
        return memory._replace(model=own), Reply(payload, data.weight, {"train_loss": trained.loss})


def _loaded(memory: PartialMemory) -> list[str]:
    """The layers that a client loads."""
    return [name for name, s in zip(memory.model.params, memory.logits.tolist(), strict=True) if s >= 0]


def next_logits(task: Task, memory: PartialMemory, sent: Weights, data: Data, rate: float) -> Tensor:
    """[layers] float64: s after one gradient step on the loss of the mixed layers."""
    logits = memory.logits.float().requires_grad_()
    gates, own = logits.sigmoid().unbind(), memory.model.params
    mixed = {name: g * sent.params[name] + (1 - g) * own[name] for g, name in zip(gates, own, strict=True)}
    loss = task.losses(Weights(mixed, sent.buffers), *data.all).sum(1).mean()
    (gradient,) = torch.autograd.grad(loss, logits)
    return memory.logits - rate * gradient.double()


@dataclass(frozen=True)
class PartialFed(Recipe):
    """Clients load only some layers of the averaged model and keep their own for the rest."""

    strategy: Literal["fix", "adaptive"] = "fix"
    load: tuple[
        str, ...
    ] = ()  # names of the layers to load, `*` matches any text; by default all but the last
    rate: float = 1.0  # learning rate of the adaptive choice
    upload: Literal["all", "loaded"] = "all"
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise SpecError(f"rate must be > 0, got {self.rate:g}; 1 is usual")
        if self.strategy == "adaptive" and (self.load or self.upload == "loaded"):
            raise SpecError(
                'with strategy = "adaptive" each client chooses its layers, and whole models travel; '
                "leave load and upload out"
            )

    def method(self) -> PartialLoading | SharedLayers:
        """See `Recipe`."""
        choice: LayerChoice = Matching(self.load) if self.load else AllButLast(1)
        slots = (self.local, self.weights, self.terms, self.aggregator, self.server)
        if self.upload == "loaded":
            return SharedLayers(choice, *slots)
        return PartialLoading(choice, self.strategy == "adaptive", self.rate, *slots)
