"""FLTrust: the server trains on a few clean samples of its own, and trusts those who go the same way.

Cao, Fang, Liu, Gong: FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping, NDSS 2021,
Algorithm 2.

    server:    g_0 = the update by training on the root samples                 -> `FLTrust.finish`
               TS_i = max(0, cos(g_i, g_0))                                     -> `trusted`
               w <- w + sum_i TS_i (||g_0|| / ||g_i||) g_i / sum_i TS_i         -> `levelled`

An update counts for its direction alone: all are as long as the server's own. If nobody is trusted the model
stays as it is.

The root samples are drawn from the training set and taken from no client, as in the paper's experiments. No
other method has clean samples at the server, so a comparison must say that this one does.

Departures: the server trains as clients do, by `[local]`; the paper gives it the same number of steps. The
server's learning rate is 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from shoal.core.data import schedule
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.types import Cohort, Context, Metrics, Reply, Weights
from shoal.parts.gathering import Gathered, by_client, gram
from shoal.parts.local import Sgd
from shoal.parts.training import Training

SERVER = -1  # its place among the clients whose updates are compared


class FLTrustState(NamedTuple):
    """What the server remembers."""

    model: Weights
    round: int  # how many are done


@dataclass(frozen=True)
class FLTrust(Training):
    """Trusts clients by their likeness to an update on clean samples."""

    maps: ClassVar[bool] = True

    root: int = 100
    local: Sgd = field(default_factory=Sgd)

    def __post_init__(self) -> None:
        if self.root < 1:
            raise SpecError(f"root must be at least 1, got {self.root}; the paper uses 100 samples")

    @property
    def root_samples(self) -> int:
        """See `Method`."""
        return self.root

    def init(self, task: Task, key: Key) -> FLTrustState:
        """See `Method`."""
        return FLTrustState(task.init(key), 0)

    def begin(self, state: FLTrustState, cohort: Cohort) -> Gathered:
        """See `Method`."""
        return Gathered.empty(state.model, Cohort((SERVER, *cohort.ids), {}, cohort.population))

    def fold(self, acc: Gathered, client: int, sent: Any, reply: Reply) -> Gathered:
        """See `Method`."""
        return acc.add(client, sent.model, reply.payload.update, 1.0)

    def finish(
        self, task: Task, state: FLTrustState, acc: Gathered, key: Key
    ) -> tuple[FLTrustState, Metrics]:
        """See `Method`."""
        assert task.root is not None
        plan = schedule(task.root.counts, self.batching, key.array[None], full=bool(task.batch_norms))
        context = Context(state.round, 0, {}, key)
        trained = self.local.train(task, state.model, replace(task.root, plan=plan), context)
        came = acc.add(SERVER, state.model, trained.update(state.model), 1.0).arrived()
        products = gram(came.rows)
        trust = trusted(products)
        model = came.moved(came.combined(trust * levelled(products)))
        return FLTrustState(model, state.round + 1), {"weights": by_client(came.ids[1:], trust[1:])}


def trusted(products: Tensor) -> Tensor:
    """[n] float64: TS_i / sum TS from inner products, or all 0; the first is the server's, and counts 0."""
    lengths = _lengths(products)
    trust = (products[0] / (lengths[0] * lengths)).clamp(min=0)
    trust[0] = 0.0
    total = float(trust.sum())
    return trust / total if total else trust


def levelled(products: Tensor) -> Tensor:
    """[n] float64: the factors that make all updates as long as the server's."""
    return products[0, 0].sqrt() / _lengths(products)


def _lengths(products: Tensor) -> Tensor:
    norms = products.diagonal().sqrt()
    return torch.where(norms > 0, norms, 1.0)
