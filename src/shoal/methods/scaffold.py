"""SCAFFOLD: control variates correct the drift of clients whose optima differ.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning, ICML 2020, Algorithm 1 with option II.

    client i:  y <- y - eta (g_i(y) - c_i + c), K times from x       (line 10) -> `Start(shift=c, less=c_i)`
               c_i+ = c_i - c + (x - y) / (K eta)                    (line 12) -> `core.control.next_controls`
               return y - x and c_i+ - c_i
    server:    x <- x + eta_g mean(y_i - x)                          (line 16) -> `aggregators.averaging`
               c <- c + (|S| / N) mean(c_i+ - c_i)                   (line 17) -> `Scaffold.finish`

A client keeps c_i as its memory, which is stored only if its reply is accepted, so that `c = mean_i c_i`
holds even if replies are lost. eta_g is the learning rate of the slot `server`.

Departures: with local momentum rho, a client moves by more than K eta times the mean gradient; line 12 then
divides by eta K', K' = (K - rho (1 - rho^K) / (1 - rho)) / (1 - rho). Buffers are averaged like parameters
and have no control variates.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from shoal.aggregators.aggregator import Aggregator, Weighting, advanced
from shoal.aggregators.averaging import Averaged, AveragingMethod
from shoal.aggregators.mean import Mean, WeightedSum
from shoal.core.control import Control
from shoal.core.data import Data
from shoal.core.key import Key
from shoal.core.method import Axes
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.threads import parallel_pair
from shoal.core.training import Course, Start, check_training, for_blocks
from shoal.core.tree import zeros_like
from shoal.core.types import Acc, Cohort, Context, Metrics, Moment, Reply, Weights
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


class ScaffoldState(NamedTuple):
    """The server state."""

    averaged: Averaged
    control: Control

    @property
    def model(self) -> Weights:
        """The global model."""
        return self.averaged.model


class ScaffoldMessage(NamedTuple):
    """The message to a client."""

    model: Weights
    control: Control


class ScaffoldReply(NamedTuple):
    """The payload of a client's reply."""

    update: Weights
    control_change: Control


class ScaffoldAcc(NamedTuple):
    """The accumulator."""

    average: Acc
    control: WeightedSum
    population: int


@dataclass(frozen=True)
class Scaffold(AveragingMethod):
    """Corrects client drift with control variates at the clients and the server."""

    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "uniform"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        check_training(self.local, self.terms, task)
        self.averaging.check(task, axes)
        if not axes.codec.transparent:
            broken = "the server's control variate is no longer the mean of the clients'"
            warnings.warn(f"with a lossy codec {broken} in scaffold", stacklevel=2)

    def init(self, task: Task, key: Key) -> ScaffoldState:
        """See `Method`."""
        model = task.init(key)
        return ScaffoldState(self.averaging.init(model), zeros_like(model.params))

    def dispatch(self, task: Task, state: ScaffoldState, cohort: Cohort, moment: Moment) -> ScaffoldMessage:
        """See `Method`."""
        return ScaffoldMessage(state.model, state.control)

    def expects(self, task: Task, sent: Any) -> Mapping[str, Any]:
        """See `Method`."""
        return {"update": sent.model, "control_change": sent.control}

    def begin(self, state: ScaffoldState, cohort: Cohort) -> ScaffoldAcc:
        """See `Method`."""
        average = self.averaging.begin(state.averaged, cohort)
        return ScaffoldAcc(average, WeightedSum.empty(), cohort.population)

    def fold(self, acc: ScaffoldAcc, client: int, sent: Any, reply: Reply) -> ScaffoldAcc:
        """See `Method`."""
        average = self.averaging.fold(acc.average, client, sent.model, reply.payload.update, reply)
        return acc._replace(average=average, control=acc.control.add(reply.payload.control_change, 1.0))

    def fold_block(self, acc: ScaffoldAcc, clients: tuple[int, ...], sent: Any, reply: Reply) -> ScaffoldAcc:
        """See `Method`."""
        update, changes = reply.payload
        average, control = parallel_pair(
            lambda: self.averaging.fold_block(acc.average, clients, sent.model, update, reply),
            lambda: acc.control.add_rows(changes, torch.ones(len(clients), dtype=torch.float64)),
        )
        return acc._replace(average=average, control=control)

    def finish(
        self, task: Task, state: ScaffoldState, acc: ScaffoldAcc, moment: Moment
    ) -> tuple[ScaffoldState, Metrics]:
        """See `Method`."""
        averaged, metrics = self.averaging.finish(task, state.averaged, acc.average, moment)  # line 16
        control = advanced(state.control, acc.control.values, acc.population)  # line 17
        return ScaffoldState(averaged, control), metrics

    def client_init(self, task: Task, key: Key) -> Control:
        """See `Method`."""
        control: Control = zeros_like(task.init(key).params)
        return control

    @for_blocks
    def client_training(
        self, task: Task, memory: Control, message: Any, data: Data, context: Context
    ) -> Course:
        """See `Training`."""
        trained = yield Start(
            message.model, self.terms, message.control, memory, only_update=True, controls=True
        )  # line 10
        own, change = trained.controls  # line 12
        payload = ScaffoldReply(trained.update(message.model), change)
        return own, Reply(payload, data.weight, {"train_loss": trained.loss})
