"""FedGen: the server trains a feature generator from the clients' models, and clients train with it.

Zhu, Hong, Zhou: Data-Free Knowledge Distillation for Heterogeneous Federated Learning, ICML 2021,
Algorithm 1. h is a model's last layer, G(eps, y) a generator of its inputs.

    server:    min_G  sum_i mean_b a_{y,i} CE(h_i(G(eps_b, y_b)), y_b) + eta L_div -> `parts.generator.taught`
               a_{y,i} = n_i^(y) / sum_j n_j^(y)                         -> `parts.generator.label_weights`
               L_div = exp(-mean_{b,c} |eps_b - eps_c|^2 |z_b - z_c|)    -> `kernels.generator`
        client i:  minimises CE(h(x), y) + g_a (B' / B) CE(h(G(eps, y')), y')
                         + g_b KL(softmax h(G(eps, y)) || softmax h(x))      -> `terms.generated.Generated`
    server:    averages the models as FedAvg

g_a and g_b decay over the rounds. The generator is sent with the model. Clients report the number of
samples of each class that they hold, which is private information.

Departures: as in the authors' code, noise is uniform in [0, 1) and the adversarial student term is left out
(its weight is 0 there). The shares a_{y,i} are paired with their own samples; the code mixes them over the
batch. Labels are counted once instead of once per epoch, and from 0 instead of 1. The generator is trained on
the classes of which some client of the round holds at least two samples. Clients draw y' uniformly from the
classes that the generator has been trained on so far, and use no others: in the first round there are none.
Clients train as `[local]` says, and the generator's learning rate stays constant.

The authors' weights for MNIST are g_a = g_b = 10 with B' = B = 32, at a learning rate of 0.01. At our 0.05
an mlp gains nothing from them, and some runs of lenet stay at chance level; B' = 32 with our B = 10 makes
g_a 3.2 times as large, and the mlp stays at chance level for ten rounds. The defaults are therefore
g_a = g_b = 1 and B' equal to the batch size, which makes B' / B = 1. The decay of 0.98 is the authors'. The
measurements are in docs/methods/fedgen.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.averaging import Averaged, AveragingMethod
from shoal.aggregators.mean import Mean
from shoal.core.data import Data
from shoal.core.errors import SpecError
from shoal.core.gate import Like
from shoal.core.key import Key
from shoal.core.method import Axes
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.training import Course, Start, check_training
from shoal.core.tree import stack, tree_map
from shoal.core.types import Acc, Cohort, Context, Memory, Metrics, Moment, Reply, Weights
from shoal.parts.generator import (
    Adam,
    faded,
    label_weights,
    new_generator,
    taught,
)
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd
from shoal.terms.generated import Generated


class FedGenState(NamedTuple):
    """The server state."""

    averaged: Averaged
    generator: Weights
    adam: Adam
    learned: Tensor  # [classes] bool: the classes that the generator has been trained on
    head: tuple[str, ...]  # the names of the last layer's parameters

    @property
    def model(self) -> Weights:
        """The global model."""
        return self.averaged.model


class FedGenMessage(NamedTuple):
    """The message to a client."""

    model: Weights
    generator: Weights
    learned: Tensor


class FedGenReply(NamedTuple):
    """The payload of a client's reply."""

    update: Weights
    label_counts: Tensor  # [classes] int64


class Teacher(NamedTuple):
    """One client's last layer and label counts, for the training of the generator."""

    client: int
    head: dict[str, Tensor]
    label_counts: Tensor


class FedGenAcc(NamedTuple):
    """The accumulator."""

    average: Acc
    names: tuple[str, ...]
    teachers: tuple[Teacher, ...]


@dataclass(frozen=True)
class FedGen(AveragingMethod):
    """Trains a feature generator from the clients' models, and the clients with generated features."""

    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)
    g_a: float = 1.0  # weight of the loss on generated features
    g_b: float = 1.0  # weight of the agreement with the predictions on generated features
    decay: float = 0.98  # of both weights, per round
    hidden: int = 256  # width of the generator
    noise: int = 32  # size of its noise input
    draws: int | None = None  # generated features per step; by default the batch size, 32 at the server
    steps: int = 50  # training steps of the generator, per round
    generator_lr: float = 3e-4
    generator_decay: float = 0.01  # weight decay of the generator
    eta: float = 1.0  # weight of the diversity loss

    def __post_init__(self) -> None:
        for name in ("g_a", "g_b", "generator_decay", "eta"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SpecError(f"{name} must be >= 0, got {getattr(self, name):g}")
        if not 0 < self.decay <= 1:
            raise SpecError(f"decay must be in (0, 1], got {self.decay:g}; the authors use 0.98")
        if not 0 < self.generator_lr < math.inf:
            raise SpecError(f"generator_lr must be > 0, got {self.generator_lr:g}; the authors use 3e-4")
        for name, least in (("hidden", 1), ("noise", 1), ("draws", 2), ("steps", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise SpecError(f"{name} must be at least {least}, got {value}")

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        check_training(self.local, self.terms, task)
        self.averaging.check(task, axes)
        task.check_softmax("fedgen")
        task.check_head("fedgen")

    # ---- server

    def init(self, task: Task, key: Key) -> FedGenState:
        """See `Method`."""
        generator = new_generator(self.noise, task.classes, self.hidden, task.width, key.fold("generator"))
        generator = tree_map(lambda value: value.to(task.device), generator)
        learned = torch.zeros(task.classes, dtype=torch.bool, device=task.device)
        averaged, adam = self.averaging.init(task.init(key)), Adam.fresh(generator.params)
        return FedGenState(averaged, generator, adam, learned, task.head_names)

    def dispatch(self, task: Task, state: FedGenState, cohort: Cohort, moment: Moment) -> FedGenMessage:
        """See `Method`."""
        return FedGenMessage(state.model, state.generator, state.learned)

    def expects(self, task: Task, sent: Any) -> Mapping[str, Any]:
        """See `Method`."""
        counts = Like((task.classes,), torch.int64, minimum=0)
        return {"update": sent.model, "label_counts": counts}

    def begin(self, state: FedGenState, cohort: Cohort) -> FedGenAcc:
        """See `Method`."""
        return FedGenAcc(self.averaging.begin(state.averaged, cohort), state.head, ())

    def fold(self, acc: FedGenAcc, client: int, sent: Any, reply: Reply) -> FedGenAcc:
        """See `Method`."""
        payload = reply.payload
        average = self.averaging.fold(acc.average, client, sent.model, payload.update, reply)
        head = {name: sent.model.params[name] + payload.update.params[name] for name in acc.names}
        teacher = Teacher(client, head, payload.label_counts)
        return acc._replace(average=average, teachers=(*acc.teachers, teacher))

    def finish(
        self, task: Task, state: FedGenState, acc: FedGenAcc, moment: Moment
    ) -> tuple[FedGenState, Metrics]:
        """See `Method`."""
        if not acc.teachers:
            return state, {}
        averaged, metrics = self.averaging.finish(task, state.averaged, acc.average, moment)
        teachers = sorted(acc.teachers, key=lambda teacher: teacher.client)
        counts = torch.stack([teacher.label_counts for teacher in teachers])
        heads = stack([teacher.head for teacher in teachers])
        state, learned = self.taught(task, state, heads, counts, moment.key.fold("generator"))
        return state._replace(averaged=averaged), {**metrics, **learned}

    def taught(
        self, task: Task, state: FedGenState, heads: dict[str, Tensor], counts: Tensor, key: Key
    ) -> tuple[FedGenState, Metrics]:
        """The state with the generator trained on the clients' last layers, stacked in `heads`."""
        classes = (counts.max(0).values > 1).nonzero()[:, 0]
        if not len(classes):
            return state, {}
        draws = DRAWS if self.draws is None else self.draws
        y, noise = [], []
        for step in range(self.steps):
            y.append(classes[key.fold(step, "classes").integers(len(classes), draws)])
            noise.append(key.fold(step, "features").uniform((draws, self.noise)).to(classes.device))
        generator, adam, losses = taught(
            state.generator,
            state.adam,
            torch.stack(noise),
            torch.stack(y),
            task.head_of(heads),
            label_weights(counts),
            eta=self.eta,
            lr=self.generator_lr,
            decay=self.generator_decay,
        )
        learned = state.learned.index_fill(0, classes, True)
        state = state._replace(generator=generator, adam=adam, learned=learned)
        return state, dict(zip(("generator_loss", "diversity_loss"), losses.mean(0).tolist(), strict=True))

    def models(self, state: FedGenState) -> dict[str, Weights]:
        """See `Method`."""
        return {"": state.model, "generator": state.generator}

    # ---- client

    def client_training(
        self, task: Task, memory: Memory, message: Any, data: Data, context: Context
    ) -> Course:
        """See `Training`."""
        g_a, g_b = (faded(g, self.decay, context.round) for g in (self.g_a, self.g_b))
        draws = min(self.local.batch, data.count)
        if self.draws is not None:
            draws, g_a = self.draws, g_a * self.draws / self.local.batch
        generator = tree_map(torch.clone, message.generator)  # for identical bits: see `descent.train`
        term = Generated(generator, message.learned, g_a, g_b, draws, self.noise)
        trained = yield Start(message.model, (*self.terms, term), only_update=True)
        payload = FedGenReply(trained.update(message.model), data.label_counts)
        return memory, Reply(payload, data.weight, {"train_loss": trained.loss})


DRAWS = 32  # generated features per step at the server, by default; as in the authors' code
