"""FedFusion: clients train on fused features of the global model and of their own model.

Yao, Huang, Wu, Zhang, Sun: Towards Faster and Better Federated Learning: A Feature Fusion Approach, ICIP
2019, section 3.

    client i:  E_g is the feature extractor as sent, fixed; E_l a copy that is trained, with the fusion F and
               the last layer                                                         -> `parts.fusion`
    single:    F = lambda E_g(x) + (1 - lambda) E_l(x), with one lambda
    multi:     the same with a lambda for each feature
    conv:      F = A [E_g(x), E_l(x)], a 1 x 1 convolution
    server:    averages E_l, F and the last layer; lambda <- 0.1 new + 0.9 old        -> `FedFusion.finish`

The model that the server evaluates and clients use has E_l = E_g: with single and multi it is the averaged
model itself; with conv, A is multiplied into the last layer.

Departures: features are the inputs of the last linear layer, so that any model has them; the authors fuse the
feature maps of the last convolution. The convolution is initialised to pass E_l alone, as lambda = 0 does in
the others; the authors initialise it at random. E_g's features are computed once per round, in evaluation
mode. The authors' learning rates belong to `[local]`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.averaging import Averaged, AveragingMethod
from shoal.aggregators.mean import Mean
from shoal.core.data import Data
from shoal.core.errors import SpecError
from shoal.core.flat import flat
from shoal.core.key import Key
from shoal.core.method import Axes
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.training import Course, Start, check_training
from shoal.core.types import Acc, Cohort, Context, Metrics, ModelUpdate, Moment, Reply, Weights
from shoal.parts.fusion import (
    FUSION,
    Operator,
    folded,
    fused_task,
    initial_fusion,
    named_back,
    renamed,
    with_features,
)
from shoal.parts.layers import other_layers
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


class FedFusionState(NamedTuple):
    """The server state: the model with its fusion, and the name of the last layer's weight."""

    averaged: Averaged
    last: str

    @property
    def model(self) -> Weights:
        """The model and the fusion, as clients receive them."""
        return self.averaged.model


@dataclass(frozen=True)
class FedFusion(AveragingMethod):
    """Clients train on fused features of the model that they received and of their own model."""

    operator: Operator = "multi"
    smoothing: float = 0.9  # share of the old lambda that the server keeps
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise SpecError(f"smoothing must be a share in [0, 1), got {self.smoothing:g}; 0.9 is usual")

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        check_training(self.local, self.terms, task)
        self.averaging.check(task, axes)
        task.check_head("fedfusion")

    # ---- server

    def init(self, task: Task, key: Key) -> FedFusionState:
        """See `Method`."""
        task.check_head("fedfusion")
        model = task.init(key)
        fusion = initial_fusion(self.operator, task.width).to(task.device)
        params = flat({FUSION: fusion, **model.params})
        return FedFusionState(self.averaging.init(Weights(params, model.buffers)), f"{task.last}weight")

    def begin(self, state: FedFusionState, cohort: Cohort) -> Acc:
        """See `Method`."""
        return self.averaging.begin(state.averaged, cohort)

    def fold(self, acc: Acc, client: int, sent: Any, reply: Reply) -> Acc:
        """See `Method`."""
        return self.averaging.fold(acc, client, sent.model, reply.payload.update, reply)

    def finish(
        self, task: Task, state: FedFusionState, acc: Acc, moment: Moment
    ) -> tuple[FedFusionState, Metrics]:
        """See `Method`."""
        averaged, metrics = self.averaging.finish(task, state.averaged, acc, moment)
        if self.operator != "conv":
            old, new = state.model.params[FUSION], averaged.model.params[FUSION]
            mixed = self.smoothing * old + (1 - self.smoothing) * new
            params = flat({**averaged.model.params, FUSION: mixed})
            averaged = averaged._replace(model=averaged.model._replace(params=params))
            metrics = {**metrics, "lambda": float(mixed.mean())}
        return state._replace(averaged=averaged), metrics

    def model(self, state: FedFusionState) -> Weights:
        """See `Method`."""
        return Weights(flat(folded(state.model.params, state.last)), state.model.buffers)

    # ---- client

    def client_training(self, task: Task, memory: Any, message: Any, data: Data, context: Context) -> Course:
        """See `Training`."""
        sent, start = message.model, renamed(message.model)
        given = with_features(task, other_layers(sent, [FUSION]), data)
        fused = fused_task(task, self.operator)
        trained = yield Start(start, self.terms, task=fused, data=given, only_update=True)
        payload = ModelUpdate(named_back(trained.update(start)))
        return memory, Reply(payload, data.weight, {"train_loss": trained.loss})
