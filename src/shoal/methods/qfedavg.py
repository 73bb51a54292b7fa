"""q-FedAvg: fair federated learning, which gives clients with a high loss more weight.

Li, Sanjabi, Beirami, Smith: Fair Resource Allocation in Federated Learning, ICLR 2020, Algorithm 2.

    client k:  F_k = loss of w on all its samples                               -> `ComputeLoss`
               w_k = E epochs of SGD from w,   G_k = L (w - w_k)                -> `QFedAvg.fold`
               D_k = F_k^q G_k,   h_k = q F_k^(q-1) ||G_k||^2 + L F_k^q         -> `QFedAvg._h`
    server:    w <- w - sum_k D_k / sum_k h_k                                   -> `QFedAvg.finish`

L is one over the learning rate. With q = 0 it is FedAvg with uniform weights; a larger q makes the clients'
losses more equal. h_k contains the squared norm of the update: the longer clients train, the smaller q
must be, or the step becomes tiny. The authors use 0.001 to 5.

Departures: F_k has 1e-10 added, as in the authors' code. The server computes D_k and h_k from the update
and F_k. Buffers are averaged with the weights F_k^q. The paper draws clients in proportion to their samples;
here the selector decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shoal.aggregators.aggregator import moved
from shoal.aggregators.mean import Mean, MeanAcc
from shoal.core.data import Data
from shoal.core.errors import SpecError
from shoal.core.gate import Like
from shoal.core.key import Key
from shoal.core.method import Axes
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.threads import parallel_pair
from shoal.core.training import ComputeLoss, Course, Start, Training, check_training, for_blocks
from shoal.core.tree import elementwise, row, squared_norm
from shoal.core.types import Cohort, Context, Memory, Metrics, Moment, Reply, Weights
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd

TINY = 1e-10  # added to losses, so that negative powers are finite


class QFedAvgState(NamedTuple):
    """The server state."""

    model: Weights
    server: Any


class QFedAvgReply(NamedTuple):
    """The payload of a client's reply."""

    update: Weights
    start_loss: Tensor  # [] float64: of the model that was sent


class QFedAvgAcc(NamedTuple):
    """The accumulator: `mean` weights updates by F_k^q."""

    mean: MeanAcc
    losses: Mapping[int, float]  # F_k by client
    squares: Mapping[int, float]  # ||w_k - w||^2 by client


@dataclass(frozen=True)
class QFedAvg(Training):
    """Gives clients with a high loss more weight in the average, so that losses become more equal."""

    q: float = 0.01
    local: Sgd = field(default_factory=Sgd)
    terms: tuple[Term, ...] = ()
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        if not 0 <= self.q < math.inf:
            raise SpecError(f"q must be at least 0, got {self.q:g}; the authors use 0.001 to 5")

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        check_training(self.local, self.terms, task)

    def init(self, task: Task, key: Key) -> QFedAvgState:
        """See `Method`."""
        model = task.init(key)
        return QFedAvgState(model, self.server.init(model.params))

    def expects(self, task: Task, sent: Any) -> Mapping[str, Any]:
        """See `Method`."""
        return {"update": sent.model, "start_loss": Like((), torch.float64)}

    def begin(self, state: QFedAvgState, cohort: Cohort) -> QFedAvgAcc:
        """See `Method`."""
        return QFedAvgAcc(Mean().begin((), state.model, cohort), {}, {})

    def fold(self, acc: QFedAvgAcc, client: int, sent: Any, reply: Reply) -> QFedAvgAcc:
        """See `Method`."""
        update, loss = reply.payload.update, max(float(reply.payload.start_loss), 0.0) + TINY
        square = squared_norm(update.params)
        return QFedAvgAcc(
            Mean().fold(acc.mean, client, sent.model, update, loss**self.q),
            {**acc.losses, client: loss},
            {**acc.squares, client: square},
        )

    def fold_block(self, acc: QFedAvgAcc, clients: tuple[int, ...], sent: Any, reply: Reply) -> QFedAvgAcc:
        """See `Method`."""
        update, found = reply.payload
        losses = [max(loss, 0.0) + TINY for loss in found.tolist()]
        weights = torch.tensor([loss**self.q for loss in losses], dtype=torch.float64)
        mean, squares = parallel_pair(
            lambda: Mean().fold_block(acc.mean, clients, sent.model, update, weights),
            lambda: [squared_norm(row(update.params, i)) for i in range(len(clients))],
        )
        return QFedAvgAcc(
            mean,
            {**acc.losses, **dict(zip(clients, losses, strict=True))},
            {**acc.squares, **dict(zip(clients, squares, strict=True))},
        )

    def finish(
        self, task: Task, state: QFedAvgState, acc: QFedAvgAcc, moment: Moment
    ) -> tuple[QFedAvgState, Metrics]:
        """See `Method`."""
        if not acc.losses:
            return state, {}
        smooth = 1 / self.local.rate(moment.round)  # L
        divisor = sum(self._h(acc, client, smooth) for client in acc.losses)
        factor = smooth / divisor
        step = elementwise(lambda value: factor * value, acc.mean.params.values)
        kept, params = self.server.step(state.server, step)
        buffers = Mean().finish(task, (), acc.mean, moment).step.buffers if state.model.buffers else {}
        model = moved(state.model, Weights(params, buffers))
        weights = {c: factor * self._draws(acc, c) * loss**self.q for c, loss in acc.losses.items()}
        return QFedAvgState(model, kept), {"weights": weights}

    def _h(self, acc: QFedAvgAcc, client: int, smooth: float) -> float:
        """h_k, times the number of times that the client was drawn."""
        loss, length = acc.losses[client], smooth**2 * acc.squares[client]
        h: float = self.q * loss ** (self.q - 1) * length + smooth * loss**self.q
        return self._draws(acc, client) * h

    def _draws(self, acc: QFedAvgAcc, client: int) -> int:
        return acc.mean.draws.get(client, 1)

    @for_blocks
    def client_training(
        self, task: Task, memory: Memory, message: Any, data: Data, context: Context
    ) -> Course:
        """See `Training`."""
        loss = yield ComputeLoss(message.model)
        trained = yield Start(message.model, self.terms, only_update=True)
        payload = QFedAvgReply(trained.update(message.model), loss)
        return memory, Reply(payload, data.weight, {"train_loss": trained.loss})
