"""SCAFFOLD: control variates correct the drift of clients whose optima differ.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning, ICML 2020, Algorithm 1 with option II.

    client i:  y <- y - eta (g_i(y) - c_i + c), K times from x       (line 10) -> `Sgd.train(shift=c - c_i)`
               c_i+ = c_i - c + (x - y) / (K eta)                    (line 12) -> `Scaffold.client_update`
               return y - x and c_i+ - c_i
    server:    x <- x + eta_g mean(y_i - x)                          (line 16) -> `Scaffold.finish`
               c <- c + (|S| / N) mean(c_i+ - c_i)                   (line 17) -> `Scaffold.finish`

A client keeps c_i as its memory, which is committed only with an accepted reply, so that `c = mean_i c_i`
holds whatever gets lost.

Departures: with local momentum rho the client has moved by more than K eta mean gradients; line 12 then
divides by eta K', K' = (K - rho (1 - rho^K) / (1 - rho)) / (1 - rho). Buffers are averaged like parameters
and have no control variates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from shoal.core.data import Batching, Data
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.method import Method
from shoal.core.task import Task
from shoal.core.tree import subtract, zeros_like
from shoal.core.types import Cohort, Context, Metrics, Reply, Weights
from shoal.parts.aggregators import Mean, MeanAcc, WeightedSum, Weighting, client_weight, moved
from shoal.parts.local import Sgd

Control = Mapping[str, Tensor]


class ScaffoldState(NamedTuple):
    """What the server remembers."""

    model: Weights
    control: Control


class ScaffoldMessage(NamedTuple):
    """What a client is sent."""

    model: Weights
    control: Control


class ScaffoldReply(NamedTuple):
    """What a client returns."""

    update: Weights
    control_change: Control


class ScaffoldAcc(NamedTuple):
    """The fold."""

    mean: MeanAcc
    control: WeightedSum
    population: int


@dataclass(frozen=True)
class Scaffold(Method):
    """Corrects client drift by control variates that clients and server keep."""

    remembers: ClassVar[bool] = True
    maps: ClassVar[bool] = True
    keeps: ClassVar[bool] = False
    needs_exact: ClassVar[str] = "the server's control is no longer the mean of the clients'"

    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "uniform"
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        if not self.server_lr > 0:
            raise SpecError(f"server_lr must be > 0, got {self.server_lr:g}; the paper uses 1")

    def init(self, task: Task, key: Key) -> ScaffoldState:
        """See `Method`."""
        model = task.init(key)
        return ScaffoldState(model, zeros_like(model.params))

    def dispatch(self, task: Task, state: ScaffoldState, cohort: Cohort, key: Key) -> ScaffoldMessage:
        """See `Method`."""
        return ScaffoldMessage(state.model, state.control)

    def begin(self, state: ScaffoldState, cohort: Cohort) -> ScaffoldAcc:
        """See `Method`."""
        return ScaffoldAcc(Mean().begin((), state.model, cohort), WeightedSum.empty(), cohort.population)

    def fold(self, acc: ScaffoldAcc, client: int, sent: Any, reply: Reply) -> ScaffoldAcc:
        """See `Method`."""
        weight = client_weight(self.weights, reply)
        mean = Mean().fold(acc.mean, client, sent.model, reply.payload.update, weight)
        return acc._replace(mean=mean, control=acc.control.add(reply.payload.control_change, 1.0))

    def finish(
        self, task: Task, state: ScaffoldState, acc: ScaffoldAcc, key: Key
    ) -> tuple[ScaffoldState, Metrics]:
        """See `Method`."""
        _, model, _ = Mean().finish((), acc.mean)
        if self.server_lr != 1.0:
            step = {name: self.server_lr * value for name, value in acc.mean.floats.mean().items()}
            model = model._replace(params=moved(state.model.params, step))  # line 16
        change = {name: value / acc.population for name, value in acc.control.values.items()}
        return ScaffoldState(model, moved(state.control, change)), {}  # line 17

    def model(self, state: ScaffoldState) -> Weights:
        """See `Method`."""
        return state.model

    @property
    def batching(self) -> Batching:
        """See `Method`."""
        return self.local.batching

    def client_init(self, task: Task, key: Key) -> Control:
        """See `Method`."""
        control: Control = zeros_like(task.init(key).params)
        return control

    def client_update(
        self, task: Task, memory: Control, message: Any, data: Data, context: Context
    ) -> tuple[Control, Reply]:
        """See `Method`."""
        shift = subtract(message.control, memory)
        trained = self.local.train(task, message.model, data, context, shift=shift)  # line 10
        update = trained.update(message.model)
        reach = self.local.rate(context.round) * effective_steps(trained.steps, self.local.momentum)
        control = {
            name: memory[name] - message.control[name] - update.params[name] / reach for name in memory
        }  # line 12
        payload = ScaffoldReply(update, subtract(control, memory))
        return control, Reply(payload, data.weight, {"train_loss": trained.loss})


def effective_steps(steps: int | Tensor, momentum: float) -> float | Tensor:
    """How many plain steps move as far as `steps` steps with momentum, under a constant gradient."""
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
