"""FedSVD: FedAvg with updates sent as products of thin matrices.

After Grammenos, Mendoza-Smith, Crowcroft, Mascolo: Federated Principal Component Analysis, NeurIPS 2020, with
which DSVD-FL compares itself. That paper is about streams of data, not about training; this method is the
part of it that applies to updates.

    client i:  D_i = w_i - w,   every matrix of it -> U_k diag(s_k) V_k^T       -> `codecs.low_rank.LowRank`
    server:    w <- w + sum_i a_i U_k diag(s_k) V_k^T / sum_i a_i               -> `aggregators.mean.Mean`

k is the share `rank` of a matrix's full rank, rounded up. The factors take k (rows + columns + 1) numbers; if
the dense matrix takes fewer, it is sent instead. Vectors and buffers are sent unchanged. With `rank = 1` it
is FedAvg.

Departures: as said, the method is ours. It uses neither the paper's merging of subspaces nor its noise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.averaging import Averaged, AveragingMethod
from shoal.aggregators.mean import Mean
from shoal.codecs.low_rank import LowRank, restored
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.types import Acc, Cohort, Metrics, Moment, Reply, Setting
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


@dataclass(frozen=True)
class FedSVD(AveragingMethod):
    """Averages updates that clients truncate to a low rank by SVD."""

    rank: float = 0.25
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        LowRank(self.rank)  # rejects an invalid rank at once

    def init(self, task: Task, key: Key) -> Averaged:
        """See `Method`."""
        return self.averaging.init(task.init(key))

    def begin(self, state: Averaged, cohort: Cohort) -> Acc:
        """See `Method`."""
        return self.averaging.begin(state, cohort)

    def fold(self, acc: Acc, client: int, sent: Any, reply: Reply) -> Acc:
        """See `Method`."""
        return self.averaging.fold(acc, client, sent.model, reply.payload.update, reply)

    def finish(self, task: Task, state: Averaged, acc: Acc, moment: Moment) -> tuple[Averaged, Metrics]:
        """See `Method`."""
        return self.averaging.finish(task, state, acc, moment)

    def upload(self, reply: Reply, setting: Setting) -> Reply:
        """See `Method`."""
        return reply._replace(payload=LowRank(self.rank).encode(reply.payload)[0].content)

    def received(self, reply: Reply, sent: Any) -> Reply:
        """See `Method`."""
        return reply._replace(payload=restored(reply.payload, sent.model))
