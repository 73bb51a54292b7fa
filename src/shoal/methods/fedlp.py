"""FedLP: every client sends only some layers, drawn at random, or holds only the first layers.

Zhu, Shi, Luo, Wang, Peng, Fan, Letaief: FedLP: Layer-wise Pruning Mechanism for Communication-Computation
Efficient Federated Learning, ICC 2023.

    homogeneous:    all clients train the whole model; each sends each layer with probability p
    heterogeneous:  client i holds the first d_i layers of the model and an exit of its own, trains and sends
                    these; the exit stays with it                       -> `parts.submodels.cut_task`
    server:         w_l <- mean of layer l over the clients that sent it        -> `aggregators.mean.Mean`
                    a layer that nobody sent stays as it is

The homogeneous form takes (1 + p) / 2 of FedAvg's traffic in expectation, because whole models are sent down.
With p = 1 it is FedAvg, bit for bit. `depths` turns on the heterogeneous form; depths are assigned to clients
in turn, starting over at the end of the list.

Departures: a layer is a weight matrix with its bias and the norm that follows it; the authors' code draws
each tensor on its own (`granularity = "tensor"`), and averages uniformly (`weights = "uniform"`). A client
whose depth is that of the model has the common last layer. All clients are evaluated with the global model,
as in the authors' code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from shoal.aggregators.aggregator import Weighting
from shoal.aggregators.averaging import Averaged, Averaging
from shoal.aggregators.mean import Mean
from shoal.core.data import Data
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.method import Axes
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.training import Course, Start, Training, check_training
from shoal.core.types import (
    Acc,
    Cohort,
    Context,
    Metrics,
    ModelMessage,
    Moment,
    PerClient,
    Reply,
    Setting,
    Weights,
)
from shoal.parts.layers import LayersUpdate, any_layers, joined, other_layers, some_layers, whole_layers
from shoal.parts.submodels import check_sequential, cut_task, depth_of, first_layers
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


@dataclass(frozen=True)
class FedLP(Training):
    """Clients send each layer with probability p, or hold and send only the model's first layers."""

    p: float = 0.5  # probability that a client sends a layer
    depths: tuple[int, ...] = ()  # layers that clients hold, in turn; by default all hold the whole model
    granularity: Literal["layer", "tensor"] = "layer"  # the unit that is sent or not
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise SpecError(f"p must be a probability in (0, 1], got {self.p:g}; 1 sends everything")
        if any(depth < 1 for depth in self.depths):
            raise SpecError(f"depths must be at least 1, the first layer, got {min(self.depths)}")

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        check_training(self.local, self.terms, task)
        self._averaging.check(task, axes)
        if self.depths:
            check_sequential(task, "fedlp with depths")
            if max(self.depths) > depth_of(task):
                raise SpecError(
                    f"depths must be at most {depth_of(task)}, the model's, got {max(self.depths)}"
                )

    @property
    def _averaging(self) -> Averaging:
        return Averaging(Mean(), self.server, self.weights)

    # ---- server

    def init(self, task: Task, key: Key) -> Averaged:
        """See `Method`."""
        return self._averaging.init(task.init(key))

    def dispatch(self, task: Task, state: Averaged, cohort: Cohort, moment: Moment) -> ModelMessage:
        """See `Method`."""
        if not self.depths:
            return ModelMessage(state.model)
        cuts = {depth: some_layers(state.model, first_layers(task, depth)) for depth in set(self.depths)}
        return ModelMessage(PerClient([cuts[self.depths[c % len(self.depths)]] for c in cohort.ids]))

    def expects(self, task: Task, sent: Any) -> Mapping[str, Any]:
        """See `Method`."""
        return {"update": any_layers(sent.model)}

    def begin(self, state: Averaged, cohort: Cohort) -> Acc:
        """See `Method`."""
        return self._averaging.begin(state, cohort)

    def fold(self, acc: Acc, client: int, sent: Any, reply: Reply) -> Acc:
        """See `Method`."""
        return self._averaging.fold(acc, client, sent.model, reply.payload.update, reply)

    def finish(self, task: Task, state: Averaged, acc: Acc, moment: Moment) -> tuple[Averaged, Metrics]:
        """See `Method`."""
        return self._averaging.finish(task, state, acc, moment)

    # ---- client

    @property
    def remembers(self) -> bool:
        """See `Method`. Only a client that holds part of the model has an exit of its own."""
        return bool(self.depths)

    def client_init(self, task: Task, key: Key) -> Weights:
        """See `Method`. The exit, which is drawn when the client first takes part."""
        return Weights({}, {})

    def client_training(
        self, task: Task, memory: Weights, message: Any, data: Data, context: Context
    ) -> Course:
        """See `Training`."""
        sent = message.model
        if len(sent.params) == len(task.shapes):
            trained = yield Start(sent, self.terms, only_update=True)
            update = trained.update(sent)
        else:
            held = cut_task(task, self._depth(task, sent))
            end = (
                memory if memory.params else other_layers(held.init(context.key.fold("exit")), [*sent.params])
            )
            start = joined(sent, end)
            trained = self.local.train(held, start, data, context, self.terms)
            update = some_layers(trained.update(start), [*sent.params])
            memory = other_layers(trained.weights, [*sent.params])
        payload = LayersUpdate(update, self._drawn(sent, context.key.fold("layers")))
        return memory, Reply(payload, data.weight, {"train_loss": trained.loss})

    def upload(self, reply: Reply, setting: Setting) -> Reply:
        """See `Method`."""
        return reply._replace(payload=reply.payload.chosen())

    def _depth(self, task: Task, sent: Weights) -> int:
        return next(depth for depth in self.depths if len(first_layers(task, depth)) == len(sent.params))

    def _drawn(self, sent: Weights, key: Key) -> tuple[str, ...]:
        """The layers that a client sends."""
        units = whole_layers(sent.params) if self.granularity == "layer" else [[name] for name in sent.params]
        coins = key.numpy().random(len(units)).tolist()
        return tuple(name for unit, coin in zip(units, coins, strict=True) if coin < self.p for name in unit)
