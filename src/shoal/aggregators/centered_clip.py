"""Centered clipping: every update counts, but no farther than a radius from where the last step went.

Karimireddy, He, Jaggi: Learning from History for Byzantine Robust Optimization, ICML 2021, section 4.

    v <- the last step;   v <- v + mean of (D_i - v) min(1, r / ||D_i - v||), L times      -> `centred`
    w <- w + v

Departures: without a number, r is the median distance from v, because the right number depends on model,
data and round. The paper's clients send momenta; here they send updates, and the server remembers its
step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shoal.aggregators.matrix import Decision, MatrixRule, UpdateMatrix, shortening
from shoal.core.errors import SpecError
from shoal.core.types import Weights


def centred(
    rows: Tensor, start: Tensor, weights: Tensor, radius: float | None, steps: int
) -> tuple[Tensor, Tensor]:
    """The centre [numbers] after so many steps from `start`, and [n] the factors of the last clipping."""
    centre, shares, factors = start, weights / weights.sum(), torch.ones_like(weights)
    for _ in range(steps):
        away = rows.double() - centre
        norms = away.norm(dim=1)
        factors = shortening(norms, float(norms.quantile(0.5)) if radius is None else radius)
        centre = centre + (shares * factors) @ away
    return centre, shares * factors


@dataclass(frozen=True)
class CenteredClip(MatrixRule):
    """Averages updates that are clipped around the last step."""

    radius: float | None = None  # how far an update may be from the centre; by default the median distance
    steps: int = 3

    def __post_init__(self) -> None:
        if self.radius is not None and not self.radius > 0:
            raise SpecError(f"radius must be > 0, got {self.radius:g}; leave it out for the median distance")
        if self.steps < 1:
            raise SpecError(f"steps must be at least 1, got {self.steps}; 3 is usual")

    def init(self, model: Weights) -> Tensor | None:
        """See `Aggregator`."""
        return None

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`."""
        start = torch.zeros(updates.rows.shape[1], dtype=torch.float64) if state is None else state
        centre, counts = centred(updates.rows, start, updates.weights, self.radius, self.steps)
        return Decision(centre, centre, counts)
