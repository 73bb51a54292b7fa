"""FedSVD: FedAvg whose clients send their updates as products of thin matrices.

After Grammenos, Mendoza-Smith, Crowcroft, Mascolo: Federated Principal Component Analysis, NeurIPS 2020, with
which DSVD-FL compares itself. That paper is about streams of data, not about training; what is here is what
remains of it for updates.

    client i:  D_i = w_i - w,   every matrix of it -> U_k diag(s_k) V_k^T       -> `parts.factors.compressed`
    server:    w <- w + sum_i a_i U_k diag(s_k) V_k^T / sum_i a_i               -> `parts.aggregators.Mean`

k is `rank` of a matrix's largest rank, rounded up. It costs k (rows + columns + 1) numbers; where the dense
matrix takes fewer, that is sent. Vectors and buffers are sent as they are. With `rank = 1` it is FedAvg.

Departures: as said, the method is ours. The paper's merging of subspaces and its noise have no place in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.types import (
    Cohort,
    Metrics,
    ModelMessage,
    Reply,
    Setting,
    Weights,
)
from shoal.parts.aggregators import Mean, MeanAcc, Weighting, client_weight
from shoal.parts.factors import compressed, restored
from shoal.parts.local import Sgd
from shoal.parts.training import Training


@dataclass(frozen=True)
class FedSVD(Training):
    """Averages updates of low rank."""

    maps: ClassVar[bool] = True

    rank: float = 0.25
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"

    def __post_init__(self) -> None:
        if not 0 < self.rank <= 1:
            raise SpecError(f"rank must be in (0, 1], got {self.rank:g}; it is a share of the largest rank")

    def init(self, task: Task, key: Key) -> Weights:
        """See `Method`."""
        return task.init(key)

    def dispatch(self, task: Task, state: Weights, cohort: Cohort, key: Key) -> ModelMessage:
        """See `Method`."""
        return ModelMessage(state)

    def begin(self, state: Weights, cohort: Cohort) -> MeanAcc:
        """See `Method`."""
        return Mean().begin((), state, cohort)

    def fold(self, acc: MeanAcc, client: int, sent: Any, reply: Reply) -> MeanAcc:
        """See `Method`."""
        update = restored(reply.payload.update, acc.model.params)
        return Mean().fold(acc, client, sent.model, update, client_weight(self.weights, reply))

    def finish(self, task: Task, state: Weights, acc: MeanAcc, key: Key) -> tuple[Weights, Metrics]:
        """See `Method`."""
        _, model, metrics = Mean().finish((), acc)
        return model, metrics

    def model(self, state: Weights) -> Weights:
        """See `Method`."""
        return state

    def upload(self, reply: Reply, setting: Setting) -> Reply:
        """See `Method`."""
        assert reply.weight is not None
        update = compressed(reply.payload.update, self.rank, stacked=bool(reply.weight.dim()))
        return reply._replace(payload=reply.payload._replace(update=update))
