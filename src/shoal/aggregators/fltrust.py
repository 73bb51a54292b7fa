"""FLTrust: the server trains on a few clean samples, and trusts clients whose updates point the same way.

Cao, Fang, Liu, Gong: FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping, NDSS 2021,
Algorithm 2.

    server:    g_0 = the update by training on the root samples                 -> `FLTrust.finish`
               TS_i = max(0, cos(g_i, g_0))                                     -> `trusted`
               w <- w + sum_i TS_i (||g_0|| / ||g_i||) g_i / sum_i TS_i         -> `levelled`

Only the direction of an update counts: all are scaled to the norm of the server's own update. If no client is
trusted, the model stays as it is.

The root samples are drawn from the training set and taken from no client, as in the paper's experiments. No
other method has clean samples at the server, so a comparison must say that this one does.

Departures: the server trains as clients do, by `[local]`; the paper gives it the same number of steps. The
server's learning rate is 1 unless the slot `server` says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from shoal.aggregators.aggregator import Aggregator, Outcome
from shoal.aggregators.matrix import NO_STEP, UpdateMatrix, gram, weighted
from shoal.core.data import schedule
from shoal.core.errors import SpecError
from shoal.core.method import Axes
from shoal.core.task import Task
from shoal.core.types import Cohort, Context, Moment, PerClient, Weights
from shoal.solver.sgd import Sgd


@dataclass(frozen=True)
class FLTrust(Aggregator):
    """Weights updates by their cosine similarity to an update that the server trains on clean samples."""

    weighs: ClassVar[bool] = False

    root: int = 100  # clean samples at the server
    local: Sgd = field(default_factory=Sgd)  # how the server trains on them

    def __post_init__(self) -> None:
        if self.root < 1:
            raise SpecError(f"root must be at least 1, got {self.root}; the paper uses 100 samples")

    def check(self, task: Task, axes: Axes) -> None:
        """See `Aggregator`."""
        if task.root is None:
            raise SpecError("fltrust needs clean samples at the server, and this one has none; use dsvd")
        task.root(self.root)  # raises if there are not that many

    def begin(self, state: Any, model: Weights, cohort: Cohort) -> UpdateMatrix:
        """See `Aggregator`."""
        return UpdateMatrix.empty(model, Cohort(cohort.ids, {}, cohort.population))

    def fold(
        self, acc: UpdateMatrix, client: int, sent: Weights, update: Weights, weight: float
    ) -> UpdateMatrix:
        """See `Aggregator`."""
        return acc.add(client, sent, update, 1.0)

    def fold_block(
        self,
        acc: UpdateMatrix,
        clients: tuple[int, ...],
        sent: Weights | PerClient,
        update: Weights,
        weights: Tensor,
    ) -> UpdateMatrix:
        """See `Aggregator`."""
        at_once = acc.add_rows(clients, sent, update, torch.ones_like(weights))
        if at_once is None:
            at_once = Aggregator.fold_block(self, acc, clients, sent, update, weights)
        return at_once

    def finish(self, task: Task, state: Any, acc: UpdateMatrix, moment: Moment) -> Outcome:
        """See `Aggregator`."""
        if acc.nobody_came:
            return Outcome(state, NO_STEP)
        came = acc.arrived()
        own = came.row(came.model, self._own_update(task, came.model, moment)).to(came.rows)
        products = gram([own, *came.rows])
        trust = trusted(products)
        made = weighted(state, came, trust * levelled(products), products[1:, 1:])
        return made._replace(weights=trust).outcome(came)

    def _own_update(self, task: Task, model: Weights, moment: Moment) -> Weights:
        """The update of the server's own training."""
        assert task.root is not None
        root, context = task.root(self.root), Context(moment.round, moment.leg, {}, moment.key)
        counts = torch.tensor([root.count]).numpy()
        plan = schedule(counts, self.local.batching, moment.key.array[None], full=bool(task.batch_norms))
        trained = self.local.train(task, model, replace(root, plan=plan), context)
        return trained.update(model)


def trusted(products: Tensor) -> Tensor:
    """[n] float64: TS_i / sum TS, or all 0; from inner products [1 + n, 1 + n] with the server's first."""
    lengths = _lengths(products)
    trust = (products[0] / (lengths[0] * lengths))[1:].clamp(min=0)
    total = float(trust.sum())
    return trust / total if total else trust


def levelled(products: Tensor) -> Tensor:
    """[n] float64: the factors that scale all updates to the norm of the server's."""
    return products[0, 0].sqrt() / _lengths(products)[1:]


def _lengths(products: Tensor) -> Tensor:
    norms = products.diagonal().sqrt()
    return torch.where(norms > 0, norms, 1.0)
