"""FLAME: a cluster of the majority, clipped to its median length, with a little noise against backdoors.

Nguyen and others: FLAME: Taming Backdoors in Federated Learning, USENIX Security 2022, Algorithm 1.

    keep the cluster of more than half of the clients, by HDBSCAN on 1 - cos(D_i, D_j)      -> `majority`
    S = the median of ||D_i||;   step = mean of D_i min(1, S / ||D_i||) over those kept
    w <- w + step + N(0, (noise S / sqrt(numbers))^2)                                       -> `Flame`

Departures: the paper clusters models and clips updates; here both are updates, which are what differs.
The paper's sigma is lambda S for each number, with lambda = 0.001 for images; here `noise` is the length
of all noise over S, which does not depend on the size of the model. Where there is no majority, all
count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.aggregators.aggregator import Outcome
from shoal.aggregators.matrix import NO_STEP, Decision, MatrixRule, UpdateMatrix, gram, shortening, weighted
from shoal.core.errors import SpecError
from shoal.core.task import Task
from shoal.core.types import Moment


def majority(products: Tensor) -> Tensor:
    """[n] bool: the members of the cluster of more than half, from inner products; all, if there is none."""
    n = len(products)
    norms = products.diagonal().sqrt().clamp(min=1e-30)
    apart = (1 - products / norms / norms[:, None]).clamp(min=0).fill_diagonal_(0).numpy()
    if n < 3:
        return torch.ones(n, dtype=torch.bool)
    from sklearn.cluster import HDBSCAN  # slow to import, and needed by few runs

    found = HDBSCAN(
        min_cluster_size=n // 2 + 1, min_samples=1, metric="precomputed", allow_single_cluster=True, copy=True
    ).fit(np.ascontiguousarray(apart))
    member = torch.from_numpy(found.labels_ == 0)
    return member if bool(member.any()) else torch.ones(n, dtype=torch.bool)


@dataclass(frozen=True)
class Flame(MatrixRule):
    """Averages the clipped updates of the majority's cluster, and adds noise."""

    noise: float = 0.05  # its length, in median lengths of updates

    def __post_init__(self) -> None:
        if not 0 <= self.noise < torch.inf:
            raise SpecError(f"noise must be at least 0, got {self.noise:g}; 0.05 is usual")

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`. Without the noise, which needs a key."""
        products = gram(updates.rows)
        norms = products.diagonal().sqrt()
        shares = majority(products).double() * updates.weights
        shares = shares / shares.sum() * shortening(norms, float(norms.quantile(0.5)))
        return weighted(state, updates, shares)

    def finish(self, task: Task, state: Any, acc: UpdateMatrix, moment: Moment) -> Outcome:
        """See `Aggregator`."""
        came = acc.arrived()
        if not came.ids:
            return Outcome(state, NO_STEP)
        decision = self.decide(state, came)
        usual = float(came.rows.double().norm(dim=1).quantile(0.5))
        draw = torch.randn(
            len(decision.step), generator=moment.key.fold("noise").torch(), dtype=torch.float64
        )
        noise = self.noise * usual / len(draw) ** 0.5 * draw.to(decision.step.device)
        return decision._replace(step=decision.step + noise).outcome(came)
