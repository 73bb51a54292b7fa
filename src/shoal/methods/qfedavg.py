"""q-FedAvg: clients whom the model serves badly count for more.

Li, Sanjabi, Beirami, Smith: Fair Resource Allocation in Federated Learning, ICLR 2020, Algorithm 2.

    client k:  F_k = loss of w on all its samples                               -> `parts.losses.mean_loss`
               w_k = E epochs of SGD from w,   G_k = L (w - w_k)                -> `QFedAvg.fold`
               D_k = F_k^q G_k,   h_k = q F_k^(q-1) ||G_k||^2 + L F_k^q         -> `QFedAvg.fold`
    server:    w <- w - sum_k D_k / sum_k h_k                                   -> `QFedAvg.finish`

L is one over the learning rate. With q = 0 it is FedAvg with uniform weights; the larger q, the more alike
the clients' losses become. h_k has the squared length of the update: the longer clients train, the smaller
q must be, or the step is next to nothing. The authors use 0.001 to 5.

Departures: F_k has 1e-10 added, as in the authors' code. The server computes D_k and h_k from the update and
F_k. Buffers are averaged with the weights F_k^q. The paper samples clients in proportion to their samples;
here that is the selector's business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from shoal.core.data import Data
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.types import Cohort, Context, Memory, Metrics, Reply, Weights
from shoal.parts.aggregators import Mean, MeanAcc, moved
from shoal.parts.local import Sgd
from shoal.parts.losses import mean_loss
from shoal.parts.training import Training

TINY = 1e-10  # added to losses, so that their powers exist


class QFedAvgState(NamedTuple):
    """What the server remembers."""

    model: Weights
    round: int  # how many are done


class QFedAvgReply(NamedTuple):
    """What a client returns."""

    update: Weights
    start_loss: Tensor  # [] float64: of the model that it was sent


class QFedAvgAcc(NamedTuple):
    """The fold: `mean` weighs updates by F_k^q."""

    mean: MeanAcc
    weights: Mapping[int, float]  # F_k^q by client, as often as it was drawn
    divisor: float  # sum of h_k
    smoothness: float  # L


@dataclass(frozen=True)
class QFedAvg(Training):
    """Gives clients with a high loss more weight."""

    q: float = 0.01
    local: Sgd = field(default_factory=Sgd)

    def __post_init__(self) -> None:
        if not 0 <= self.q < math.inf:
            raise SpecError(f"q must be at least 0, got {self.q:g}; the authors use 0.001 to 5")

    def init(self, task: Task, key: Key) -> QFedAvgState:
        """See `Method`."""
        return QFedAvgState(task.init(key), 0)

    def begin(self, state: QFedAvgState, cohort: Cohort) -> QFedAvgAcc:
        """See `Method`."""
        return QFedAvgAcc(Mean().begin((), state.model, cohort), {}, 0.0, 1 / self.local.rate(state.round))

    def fold(self, acc: QFedAvgAcc, client: int, sent: Any, reply: Reply) -> QFedAvgAcc:
        """See `Method`."""
        update, loss = reply.payload.update, float(reply.payload.start_loss) + TINY
        length = acc.smoothness**2 * sum(float(x.double().square().sum()) for x in update.params.values())
        weight, times = loss**self.q, acc.mean.draws.get(client, 1)
        h = self.q * loss ** (self.q - 1) * length + acc.smoothness * weight
        return acc._replace(
            mean=Mean().fold(acc.mean, client, sent.model, update, weight),
            weights={**acc.weights, client: times * weight},
            divisor=acc.divisor + times * h,
        )

    def finish(
        self, task: Task, state: QFedAvgState, acc: QFedAvgAcc, key: Key
    ) -> tuple[QFedAvgState, Metrics]:
        """See `Method`."""
        _, averaged, _ = Mean().finish((), acc.mean)
        factor = acc.smoothness / acc.divisor
        step = {name: factor * acc.mean.floats.values[name] for name in state.model.params}
        model = Weights(moved(state.model.params, step), averaged.buffers)
        weights = {client: factor * weight for client, weight in acc.weights.items()}
        return QFedAvgState(model, state.round + 1), {"weights": weights}

    def client_update(
        self, task: Task, memory: Memory, message: Any, data: Data, context: Context
    ) -> tuple[Memory, Reply]:
        """See `Method`."""
        loss = mean_loss(task, message.model, data)
        trained = self.local.train(task, message.model, data, context)
        payload = QFedAvgReply(trained.update(message.model), loss)
        return memory, Reply(payload, data.weight, {"train_loss": trained.loss})
