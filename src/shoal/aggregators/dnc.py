"""Divide and conquer: drops the clients farthest out along the direction in which updates differ most.

Shejwalkar, Houmansadr: Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for
Federated Learning, NDSS 2021, Algorithm 2.

    `tries` times:  take `width` coordinates at random
                    v = the first right singular vector of the centred updates
                    s_i = <D_i - mean, v>^2;  leave out the c f clients with the largest s   -> `outlying`
    w <- w + mean of the updates that no try left out

Departures: f may be a share of the cohort. If every client was left out by some try, all clients count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from shoal.aggregators.aggregator import Outcome, check_amount, count_of
from shoal.aggregators.matrix import NO_STEP, Decision, MatrixRule, UpdateMatrix, weighted
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.threads import parallel_map
from shoal.core.types import Moment
from shoal.kernels.columns import take
from shoal.kernels.products import products

FIRST = Key.from_seed(0).fold("dnc")


def outlying(inner: Tensor) -> Tensor:
    """[tries, n] float64: in each try, the squared projections of n vectors onto their first principal
    direction, from their inner products [tries, n, n]."""
    means = inner.mean(1, keepdim=True)
    centred = inner - means - means.mT + means.mean(2, keepdim=True)
    values, vectors = torch.linalg.eigh(centred)
    found: Tensor = values[:, -1:].clamp(min=0) * vectors[:, :, -1].square()
    return found


@dataclass(frozen=True)
class DnC(MatrixRule):
    """Averages updates after dropping outliers along the first principal direction."""

    weighs: ClassVar[bool] = False

    f: float = 0.2  # expected attackers: a number, or a share of the cohort
    keep: float = 1.0  # c: each try leaves out c f clients
    tries: int = 5
    width: int = 10000  # coordinates drawn in each try

    def __post_init__(self) -> None:
        check_amount("f", self.f, 0.5)
        if self.tries < 1 or self.width < 1 or not self.keep > 0:
            raise SpecError(
                f"tries and width must be at least 1 and keep above 0, got {self.tries}, {self.width} "
                f"and {self.keep:g}"
            )

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`."""
        return self._decided(state, updates, FIRST)

    def finish(self, task: Task, state: Any, acc: UpdateMatrix, moment: Moment) -> Outcome:
        """See `Aggregator`."""
        came = acc.arrived()
        if not came.ids:
            return Outcome(state, NO_STEP)
        return self._decided(state, came, moment.key.fold("dnc")).outcome(came)

    def _decided(self, state: Any, updates: UpdateMatrix, key: Key) -> Decision:
        n, width = len(updates.ids), min(self.width, updates.rows.shape[1])
        drop = min(int(self.keep * count_of(self.f, n)), n - 1)
        scores = outlying(_products(updates.rows, width, [key.fold(trial) for trial in range(self.tries)]))
        good = torch.ones(n, dtype=torch.bool)
        good[scores.sort(descending=True, stable=True).indices[:, :drop]] = False
        kept = good.double() if bool(good.any()) else torch.ones(n, dtype=torch.float64)
        return weighted(state, updates, kept / kept.sum())


def _products(rows: Tensor, width: int, keys: Sequence[Key]) -> Tensor:
    """[tries, n, n] float64: the inner products of the rows over `width` columns, drawn with each key."""
    numbers = rows.float().cpu().contiguous().numpy()

    def drawn(key: Key) -> np.ndarray:
        return np.sort(key.numpy().choice(numbers.shape[1], width, replace=False))

    places = np.stack(parallel_map(drawn, keys))
    taken = np.empty((len(numbers), len(keys), width), np.float32)
    parallel_map(lambda i: take(numbers[i], places, taken[i]), range(len(numbers)))
    return torch.from_numpy(np.stack(parallel_map(lambda t: products([*taken[:, t]]), range(len(keys)))))
