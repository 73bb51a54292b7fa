"""The learnGene of one cluster: its most stable layers are exchanged, and newcomers start from them.

The paper, its equations and the departures from it are described in `genefl.py`, which runs this method in
several clusters.

    client:  L = CE + lambda1 ||w - W|| + lambda2 ||M o (w - W)||       eq. 4, 8      -> `terms.Closeness`
             M = 1 where the Fisher information is above epsilon        eq. 5, 6      -> `Gene._mask`
             sends its gamma most stable layers, its learnGene          eq. 9         -> `Gene._chosen`
    server:  averages each layer over the clients that sent it          eq. 10        -> `aggregators.mean`
    newcomer: the cluster's learnGene, the rest fresh                   Alg. 2, l. 16 -> `Gene.serve`

Departures: see `genefl.py`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor

from shoal.aggregators.aggregator import Weighting
from shoal.aggregators.averaging import Averaged, Averaging
from shoal.aggregators.mean import Mean
from shoal.core.data import Data
from shoal.core.errors import SpecError
from shoal.core.fisher import normalised
from shoal.core.flat import Flat
from shoal.core.key import Key
from shoal.core.method import Axes
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.training import ComputeFisher, Course, Start, Training, check_training
from shoal.core.types import (
    Acc,
    Cohort,
    Context,
    Metrics,
    Moment,
    PerClient,
    Reply,
    Setting,
    Tree,
    Weights,
)
from shoal.parts.layer_scores import Score, ranked, within_budget
from shoal.parts.layers import LayersUpdate, any_layers, joined, sizes_of, some_layers, update_beyond
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd
from shoal.terms.closeness import Closeness

BUDGET = 0.25  # share of the model's bytes, if neither gamma nor budget is given


class GeneMessage(NamedTuple):
    """The message to a client."""

    model: Weights | PerClient  # the cluster's model; for newcomers only the layers that they inherit
    gene: tuple[str, ...]  # the layers that were aggregated last
    extra: int  # layers to send beyond gamma or the budget


class GeneMemory(NamedTuple):
    """A client's memory: its last model, and whether that model has been trained."""

    model: Weights
    trained: bool


class GeneState(NamedTuple):
    """The server state of a cluster."""

    averaged: Averaged
    gene: tuple[str, ...]  # the layers that were aggregated last
    head: tuple[str, ...]  # the layers that newcomers do not inherit
    newcomers: tuple[int, ...]  # clients that joined after the start and have not replied yet
    extra: int  # layers beyond gamma or the budget
    best: float  # the lowest training loss of a round so far

    @property
    def model(self) -> Weights:
        """The cluster's model."""
        return self.averaged.model


class GeneAcc(NamedTuple):
    """The accumulator."""

    average: Acc
    sent: Mapping[str, int]  # how many clients sent each layer
    losses: Mapping[int, float]  # by client: the mean training loss


@dataclass(frozen=True)
class Gene(Training):
    """Exchanges the learnGene of one cluster; `genefl` runs it in several clusters."""

    lambda1: float = 0.05
    lambda2: float = 0.05
    epsilon: float = 0.5
    score: Score = "cos_over_dim"
    gamma: int | None = None  # number of layers to send
    budget: float | None = None  # share of the model's bytes to send
    start: Literal["mixed", "own", "cluster"] = "mixed"
    head: bool = False
    mask: Literal["high", "low"] = "high"
    strength: Literal["model", "layer"] = "model"
    adaptive: bool = False
    tolerance: float = 0.02
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "uniform"
    terms: tuple[Term, ...] = ()
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        for name in ("lambda1", "lambda2", "tolerance"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SpecError(f"{name} must be at least 0, got {getattr(self, name):g}")
        if not 0 <= self.epsilon <= 1:
            raise SpecError(f"epsilon must be in [0, 1], got {self.epsilon:g}; Fisher values are scaled so")
        if self.gamma is not None and self.budget is not None:
            raise SpecError(
                f"give gamma or budget, not both, got gamma = {self.gamma}, budget = {self.budget:g}"
            )
        if self.gamma is not None and self.gamma < 0:
            raise SpecError(f"gamma must be at least 0, got {self.gamma}")
        if self.budget is not None and not 0 < self.budget <= 1:
            raise SpecError(f"budget must be a share of the model's bytes in (0, 1], got {self.budget:g}")

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        check_training(self.local, self.terms, task)
        self._averaging.check(task, axes)
        if self.gamma is not None and self.gamma > len(task.shapes):
            raise SpecError(f"gamma must be at most {len(task.shapes)}, the model's layers, got {self.gamma}")
        if self.gamma is None and not self._floor(sizes_of(task)):
            smallest = min(sizes_of(task).values()) / sum(sizes_of(task).values())
            raise SpecError(
                f"budget = {self.budget or BUDGET:g} has no room for any layer of this model; "
                f"the smallest takes {smallest:.2g} of its bytes"
            )

    @property
    def _averaging(self) -> Averaging:
        return Averaging(Mean(), self.server, self.weights)

    def _floor(self, sizes: Mapping[str, int]) -> int:
        """The smallest number of layers that a client sends."""
        if self.gamma is not None:
            return self.gamma
        return len(within_budget(sorted(sizes, key=lambda name: sizes[name]), sizes, self.budget or BUDGET))

    # ---- server

    def init(self, task: Task, key: Key) -> GeneState:
        """See `Method`."""
        extra = len(task.shapes) - self._floor(sizes_of(task)) if self.adaptive else 0
        head = () if self.head or task.last is None else task.head_names
        return GeneState(self._averaging.init(task.init(key)), (), head, (), extra, math.inf)

    def admit(self, state: GeneState, profiles: Mapping[int, Tree], moment: Moment) -> GeneState:
        """See `Method`. A client that joins after the start is a newcomer."""
        return state._replace(newcomers=(*state.newcomers, *profiles)) if moment.round else state

    def dispatch(self, task: Task, state: GeneState, cohort: Cohort, moment: Moment) -> GeneMessage:
        """See `Method`."""
        return self.serve(state, cohort)

    def serve(self, state: GeneState, cohort: Cohort) -> GeneMessage:
        """See `Method`. Newcomers get only the learnGene."""
        new = set(state.newcomers).intersection(cohort.ids)
        if not new:
            return GeneMessage(state.model, state.gene, state.extra)
        inherited = some_layers(state.model, [name for name in state.gene if name not in state.head])
        rows = [inherited if client in new else state.model for client in cohort.ids]
        return GeneMessage(PerClient(rows), state.gene, state.extra)  # Algorithm 2, line 10

    def expects(self, task: Task, sent: Any) -> Mapping[str, Tree]:
        """See `Method`. Any of the layers that the client was sent."""
        return {"update": any_layers(sent.model)}

    def begin(self, state: GeneState, cohort: Cohort) -> GeneAcc:
        """See `Method`."""
        return GeneAcc(self._averaging.begin(state.averaged, cohort), {}, {})

    def fold(self, acc: GeneAcc, client: int, sent: Any, reply: Reply) -> GeneAcc:
        """See `Method`."""
        update = reply.payload.update
        average = self._averaging.fold(acc.average, client, sent.model, update, reply)
        counts = {**acc.sent, **{name: acc.sent.get(name, 0) + 1 for name in update.params}}
        return GeneAcc(average, counts, {**acc.losses, client: float(reply.metrics["train_loss"])})

    def finish(self, task: Task, state: GeneState, acc: GeneAcc, moment: Moment) -> tuple[GeneState, Metrics]:
        """See `Method`."""
        if not acc.losses:
            return state, {}
        averaged, metrics = self._averaging.finish(task, state.averaged, acc.average, moment)  # eq. 10
        layers = {name: acc.sent[name] for name in task.shapes if name in acc.sent}
        sizes = {name: value.nbytes for name, value in state.model.params.items()}
        loss = sum(acc.losses.values()) / len(acc.losses)
        steady = loss <= state.best * (1 + self.tolerance)
        after = GeneState(
            averaged,
            tuple(layers),
            state.head,
            tuple(client for client in state.newcomers if client not in acc.losses),
            max(0, state.extra - steady),
            min(state.best, loss),
        )
        sent = {name: count * sizes[name] for name, count in layers.items()}
        return after, {**metrics, "layers": layers, "layer_bytes": sent}

    def model(self, state: GeneState) -> None:
        """See `Method`. None: layers that no client has sent are still initial, so it is useless alone."""

    def models(self, state: GeneState) -> dict[str, Weights]:
        """See `Method`."""
        return {"": state.model}

    # ---- client

    def client_init(self, task: Task, key: Key) -> GeneMemory:
        """See `Method`."""
        return GeneMemory(task.init(key), False)

    def local_model(self, memory: GeneMemory, message: Any) -> Weights:
        """See `Method`. The client's last model with the layers that it takes from its cluster."""
        return joined(memory.model, some_layers(message.model, self._taken(memory, message)))

    def _taken(self, memory: GeneMemory, message: Any) -> Collection[str]:
        """The layers that a client takes from its cluster."""
        if not memory.trained or self.start == "cluster":
            every: Collection[str] = message.model.params.keys()
            return every
        return () if self.start == "own" else message.gene

    def client_training(
        self, task: Task, memory: GeneMemory, message: Any, data: Data, context: Context
    ) -> Course:
        """See `Training`."""
        start, sent = self.local_model(memory, message), message.model
        mask = self._mask((yield ComputeFisher(start))) if self._masks else None
        trained = yield Start(start, (*self.terms, *self._pulls(sent, mask)))
        weights = trained.weights
        chosen = tuple(self._chosen(start, weights, message))
        taken, change = self._taken(memory, message), trained.update(start).params
        payload = LayersUpdate(update_beyond(sent, weights, change, taken), chosen)
        return GeneMemory(weights, True), Reply(payload, data.weight, {"train_loss": trained.loss})

    def upload(self, reply: Reply, setting: Setting) -> Reply:
        """See `Method`."""
        return reply._replace(payload=reply.payload.chosen())

    def _pulls(self, sent: Weights, mask: Mapping[str, Tensor] | None) -> tuple[Term, ...]:
        """The loss terms that keep a client close to its cluster's model."""
        by_layer = self.strength == "layer"
        first = Closeness(self.lambda1, sent.params, None, by_layer)  # eq. 4
        second = Closeness(self.lambda2, sent.params, mask, by_layer)  # eq. 8
        return tuple(term for term in (first, second) if term.active)

    @property
    def _masks(self) -> bool:
        """Whether the choice of the parameters that eq. 8 constrains needs the Fisher information."""
        return self.lambda2 != 0 and not (self.mask == "low" and self.epsilon == 1)

    def _mask(self, fisher: Flat) -> Flat:
        """1 where the Fisher information (eq. 5) is on the selected side of epsilon."""
        high = normalised(fisher).vector > self.epsilon  # eq. 6
        return fisher.layout.tree((high if self.mask == "high" else ~high).float())

    def _chosen(self, start: Weights, trained: Weights, message: Any) -> list[str]:
        """The layers to send, the most stable first; only layers that the client was sent."""
        before = start.params
        names = ranked(self.score, before, trained.params)
        if self.gamma is not None:
            kept = names[: self.gamma + message.extra]
        else:
            sizes = {name: value.numel() for name, value in before.items()}
            kept = within_budget(names, sizes, self.budget or BUDGET)
            kept += [name for name in names if name not in kept][: message.extra]
        return [name for name in kept if name in message.model.params]
