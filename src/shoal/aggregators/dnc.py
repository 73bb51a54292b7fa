"""Divide and conquer: who goes farthest along the direction in which clients differ most is left out.

Shejwalkar, Houmansadr: Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for
Federated Learning, NDSS 2021, Algorithm 2.

    `tries` times:  take `width` coordinates at random
                    v = the first right singular vector of the centred updates
                    s_i = <D_i - mean, v>^2;  leave out the c f clients with the largest s   -> `outlying`
    w <- w + mean of the updates that no try left out

Departures: f may be a share of the cohort. If every client was left out by some try, all count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from shoal.aggregators.aggregator import Outcome, check_amount, count_of
from shoal.aggregators.matrix import NO_STEP, Decision, MatrixRule, UpdateMatrix, gram, weighted
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.types import Moment

FIRST = Key.from_seed(0).fold("dnc")


def outlying(rows: Tensor) -> Tensor:
    """[n] float64: squared projections of rows [n, numbers] on their first principal direction."""
    products = gram(rows)
    centred = products - products.mean(0) - products.mean(1)[:, None] + products.mean()
    values, vectors = torch.linalg.eigh(centred)
    found: Tensor = values[-1].clamp(min=0) * vectors[:, -1].square()
    return found


@dataclass(frozen=True)
class DnC(MatrixRule):
    """Averages updates without those that are outliers along the first principal direction."""

    weighs: ClassVar[bool] = False

    f: float = 0.2  # attackers: a number, or a share of the cohort
    keep: float = 1.0  # c: how many times f are left out in each try
    tries: int = 5
    width: int = 10000  # coordinates of each try

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
        n, numbers = updates.rows.shape
        drop = min(int(self.keep * count_of(self.f, n)), n - 1)
        good = torch.ones(n, dtype=torch.bool)
        for trial in range(self.tries):
            drawn = key.fold(trial).numpy().choice(numbers, min(self.width, numbers), replace=False)
            scores = outlying(updates.rows[:, torch.from_numpy(drawn).sort().values])
            good[scores.sort(descending=True, stable=True).indices[:drop]] = False
        kept = good.double() if bool(good.any()) else torch.ones(n, dtype=torch.float64)
        return weighted(state, updates, kept / kept.sum())
