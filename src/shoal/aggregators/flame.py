"""FLAME: averages the majority cluster, clipped to the median norm, with a little noise against backdoors.

Nguyen and others: FLAME: Taming Backdoors in Federated Learning, USENIX Security 2022, Algorithm 1.

    keep the cluster of more than half of the clients, by HDBSCAN on 1 - cos(D_i, D_j)      -> `majority`
    S = the median of ||D_i||;   step = mean of D_i min(1, S / ||D_i||) over those kept
    w <- w + step + N(0, (noise S / sqrt(numbers))^2)                                       -> `Flame`

Departures: the paper clusters models and clips updates; here both are done with updates, in which clients
differ. The paper's sigma is lambda S for each number, with lambda = 0.001 for images; here `noise` is the
norm of the whole noise vector divided by S, which does not depend on the size of the model. If there is no
majority cluster, all clients count.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from shoal.aggregators.aggregator import Outcome
from shoal.aggregators.matrix import (
    NO_STEP,
    Decision,
    MatrixRule,
    UpdateMatrix,
    gram,
    median,
    shortening,
    weighted,
)
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.threads import parallel_pair
from shoal.core.types import Moment


def majority(products: Tensor) -> Tensor:
    """[n] bool: the members of the cluster of more than half, from inner products; all, if there is none.

    If HDBSCAN's clusters must hold more than half of the points, and the density is that of a point's nearest
    neighbour, there is one cluster: the first to reach that size when the nearest points are joined first.
    """
    n = len(products)
    if n < 3:
        return torch.ones(n, dtype=torch.bool)
    norms = products.diagonal().sqrt().clamp(min=1e-30)
    apart = (1 - products / norms / norms[:, None]).clamp(min=0).numpy()
    order, gaps = nearest_first(apart)
    spans = sliding_window_view(gaps, n // 2).max(1)  # n // 2 joins make a cluster of more than half
    first = int(spans.argmin())
    wide = np.flatnonzero(gaps > spans[first])  # where the cluster ends
    begin = wide[wide < first].max(initial=-1) + 1
    end = wide[wide >= first + n // 2].min(initial=n - 1)
    member = torch.zeros(n, dtype=torch.bool)
    member[order[begin : end + 1]] = True
    return member


def nearest_first(apart: np.ndarray) -> tuple[list[int], np.ndarray]:
    """All points, each the nearest to any before it (Prim), and [n - 1] its distance to them.

    If all points within a given distance are joined, the points of a cluster are neighbours in this order,
    with no gap wider than that distance between them.
    """
    order, gaps, near = [0], [], apart[0].copy()
    left = np.ones(len(apart), dtype=bool)
    for _ in range(len(apart) - 1):
        left[order[-1]] = False
        following = int(np.where(left, near, np.inf).argmin())
        order.append(following)
        gaps.append(near[following])
        near = np.minimum(near, apart[following])
    return order, np.array(gaps)


@dataclass(frozen=True)
class Flame(MatrixRule):
    """Averages the clipped updates of the majority cluster, and adds noise."""

    noise: float = 0.05  # norm of the noise, in median norms of the updates

    def __post_init__(self) -> None:
        if not 0 <= self.noise < torch.inf:
            raise SpecError(f"noise must be at least 0, got {self.noise:g}; 0.05 is usual")

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`. Without the noise, which needs a key."""
        return self._decided(state, updates)[0]

    def finish(self, task: Task, state: Any, acc: UpdateMatrix, moment: Moment) -> Outcome:
        """See `Aggregator`."""
        came = acc.arrived()
        if not came.ids:
            return Outcome(state, NO_STEP)
        numbers = came.rows.shape[1]
        noise = partial(_normal, numbers, moment.key.fold("noise"))
        (decision, usual), drawn = parallel_pair(partial(self._decided, state, came), noise)
        decision.step.add_(drawn.to(decision.step.device), alpha=self.noise * usual / numbers**0.5)
        return decision.outcome(came)

    def _decided(self, state: Any, updates: UpdateMatrix) -> tuple[Decision, float]:
        """The decision without noise, and the median norm."""
        products = gram(updates.rows)
        norms = products.diagonal().sqrt()
        usual = median(norms)
        shares = majority(products).double() * updates.weights
        shares = shares / shares.sum() * shortening(norms, usual)
        return weighted(state, updates, shares, products), usual


def _normal(size: int, key: Key) -> Tensor:
    """[size] float32: standard normal numbers; in float64, drawing them takes six times as long."""
    return torch.randn(size, generator=key.torch())
