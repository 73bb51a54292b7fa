"""Centered clipping: every update counts, but is clipped to a radius around the previous step.

Karimireddy, He, Jaggi: Learning from History for Byzantine Robust Optimization, ICML 2021, section 4.

    v <- the last step;   v <- v + mean of (D_i - v) min(1, r / ||D_i - v||), L times      -> `centred`
    w <- w + v

Departures: by default r is the median distance from v, because the right number depends on model, data and
round. The paper's clients send momenta; here they send updates, and the server remembers its step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shoal.aggregators.matrix import Decision, MatrixRule, UpdateMatrix, gram, median, shortening
from shoal.aggregators.mean import add_weighted
from shoal.core.errors import SpecError
from shoal.core.types import Weights


def centred(products: Tensor, weights: Tensor, radius: float | None, steps: int) -> tuple[Tensor, Tensor]:
    """The centre after `steps` steps from the first of 1 + n vectors, and [n] the factors of the last
    clipping, from inner products [1 + n, 1 + n] alone.

    The centre is a weighted sum of all vectors, given by its coefficients [1 + n], so a step costs next to
    nothing.
    """
    centre = torch.zeros(len(products), dtype=torch.float64)
    centre[0], shares, factors = 1.0, weights / weights.sum(), torch.ones_like(weights)
    for _ in range(steps):
        along = products @ centre
        norms = (products.diagonal() - 2 * along + centre @ along)[1:].clamp(min=0).sqrt()
        factors = shares * shortening(norms, median(norms) if radius is None else radius)
        centre = centre * (1 - factors.sum())
        centre[1:] += factors
    return centre, factors


@dataclass(frozen=True)
class CenteredClip(MatrixRule):
    """Averages updates after clipping them to a radius around the previous step."""

    radius: float | None = None  # the largest distance from the centre; by default the median distance
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
        rows = updates.rows
        start = rows.new_zeros(rows.shape[1]) if state is None else state.to(rows)
        centre, counts = centred(gram([start, *rows]), updates.weights, self.radius, self.steps)
        step = float(centre[0]) * start.double()
        add_weighted(step, rows, centre[1:].numpy())
        return Decision(step.to(rows.dtype), step, counts)
