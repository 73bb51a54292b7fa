"""FedBN: normalisation stays at home.

Li, Jiang, Zhang, Kamp, Dou: FedBN: Federated Learning on Non-IID Features via Local Batch Normalization,
ICLR 2021, Algorithm 1.

    client i:  replace all but its own BatchNorm layers by the server's, train     -> `FedBN.local_model`
    server:    average all but the BatchNorm layers                                -> `parts.aggregators.Mean`

A BatchNorm layer's scale, shift and statistics never leave the client: they are its memory. Which layers
these are is read from the modules' types, not from their names. Without such layers FedBN is FedAvg with
uniform weights, to the bit; with them there is no global model, and every client is judged by its own.

Departures: none. A client that never took part starts with the initial values of its BatchNorm layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from shoal.core.data import Batching, Data
from shoal.core.key import Key
from shoal.core.method import Method
from shoal.core.task import Task
from shoal.core.tree import subtract
from shoal.core.types import Cohort, Context, Metrics, ModelMessage, ModelUpdate, Reply, Weights
from shoal.parts.aggregators import Mean, MeanAcc, Weighting, client_weight
from shoal.parts.local import Sgd


class FedBNState(NamedTuple):
    """What the server remembers: the layers that are shared, and whether they are all there is."""

    shared: Weights
    complete: bool


@dataclass(frozen=True)
class FedBN(Method):
    """Averages all but the BatchNorm layers, which every client keeps for itself."""

    remembers: ClassVar[bool] = True
    maps: ClassVar[bool] = True
    keeps: ClassVar[bool] = False

    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "uniform"

    def init(self, task: Task, key: Key) -> FedBNState:
        """See `Method`."""
        return FedBNState(shared_part(task, task.init(key)), not task.batch_norms)

    def dispatch(self, task: Task, state: FedBNState, cohort: Cohort, key: Key) -> ModelMessage:
        """See `Method`."""
        return ModelMessage(state.shared)

    def serve(self, state: FedBNState, cohort: Cohort) -> ModelMessage:
        """See `Method`."""
        return ModelMessage(state.shared)

    def begin(self, state: FedBNState, cohort: Cohort) -> MeanAcc:
        """See `Method`."""
        return Mean().begin((), state.shared, cohort)

    def fold(self, acc: MeanAcc, client: int, sent: Any, reply: Reply) -> MeanAcc:
        """See `Method`."""
        return Mean().fold(acc, client, sent.model, reply.payload.update, client_weight(self.weights, reply))

    def finish(self, task: Task, state: FedBNState, acc: MeanAcc, key: Key) -> tuple[FedBNState, Metrics]:
        """See `Method`."""
        _, shared, metrics = Mean().finish((), acc)
        return state._replace(shared=shared), metrics

    def model(self, state: FedBNState) -> Weights | None:
        """See `Method`."""
        return state.shared if state.complete else None

    def models(self, state: FedBNState) -> dict[str, Weights]:
        """See `Method`."""
        return {"": state.shared}

    @property
    def batching(self) -> Batching:
        """See `Method`."""
        return self.local.batching

    def client_init(self, task: Task, key: Key) -> Weights:
        """See `Method`."""
        return own_part(task, task.init(key))

    def client_update(
        self, task: Task, memory: Weights, message: Any, data: Data, context: Context
    ) -> tuple[Weights, Reply]:
        """See `Method`."""
        trained = self.local.train(task, self.local_model(memory, message), data, context)
        after = trained.weights
        update = subtract(shared_part(task, after), message.model)
        reply = Reply(ModelUpdate(update), data.weight, {"train_loss": trained.loss})
        return own_part(task, after), reply

    def local_model(self, memory: Weights, message: Any) -> Weights:
        """See `Method`."""
        shared = message.model
        return Weights({**shared.params, **memory.params}, {**shared.buffers, **memory.buffers})


def own_part(task: Task, weights: Weights) -> Weights:
    """The BatchNorm layers."""
    return _pick(task, weights, own=True)


def shared_part(task: Task, weights: Weights) -> Weights:
    """All other layers."""
    return _pick(task, weights, own=False)


def _pick(task: Task, weights: Weights, *, own: bool) -> Weights:
    norms = set(task.batch_norms)
    params, buffers = (
        {name: value for name, value in part.items() if (name.rpartition(".")[0] in norms) == own}
        for part in weights
    )
    return Weights(params, buffers)
