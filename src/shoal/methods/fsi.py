"""Federated Swarm Intelligence: the server proposes parameters, clients return only their losses.

Zeng: Self-adaptive Federated Swarm Intelligence, Algorithms 1 and 2.

    clients:   L_j(theta_s) = sum of squared errors, or of cross-entropies (sec. 5)  -> `parts.landscape`
    server:    L(theta_s) = sum_j L_j(theta_s)                                       -> `Swarm.fold`
               alpha <- 2 alpha if the best loss has fallen since the last epoch,
                        alpha / 2 after `patience` epochs in which it has not  (lines 8-12)
               v_s <- alpha (w1 v_s + w2 r1 (g - theta_s) + (1 - w1 - w2) r2)  (eq. 4, line 14)
               theta_s <- theta_s + v_s if that has the smaller loss           (lines 22-26)

g is the best particle; r1 in [0, 1) and r2 in [-1, 1) are drawn for each coordinate of each particle. Lines
8-14 and 22-26 are `kernels.swarm.advance`. The ten problems of one-versus-all logistic regression are
independent, each with its own alpha and g, and advance in the same exchange.

Departures: the losses of line 3 are known from lines 17-21 of the previous epoch, so an epoch is one
exchange instead of two, with the same trajectory. The paper's losses are means, with the weight l_j / J; for
our sums this weight is 1, and only comparisons matter. "Several steps" are `patience` epochs, counted as in
the author's code: a success does not reset the count, unless `reset_on_success` is set. Particles start in
[0, `initial_range`), the author's in [0, 1). The cross entropy is exact; with `loss = "paper"`, 0.001 is
added to every probability, as in the author's code. A velocity that overflows becomes 0, and the step size
stops there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoal.core.errors import SpecError
from shoal.core.types import Metrics
from shoal.parts.landscape import LossForm
from shoal.parts.swarm import FSI, Swarm, SwarmRule, SwarmState


@dataclass(frozen=True)
class Fsi(Swarm):
    """Moves a swarm of parameter vectors with a self-adapting step size; clients return only losses."""

    epochs: int = 100
    particles: int = 20
    w1: float = 0.0
    w2: float = 0.3
    alpha: float = 0.001
    patience: int = 6
    reset_on_success: bool = False
    initial_range: float = 0.01
    alpha_max: float | None = None
    loss: LossForm = "stable"

    def __post_init__(self) -> None:
        self.check_fields()
        for name, value in (("w1", self.w1), ("w2", self.w2)):
            if not 0 <= value <= 1:
                raise SpecError(f"{name} must be in [0, 1], got {value:g}; the paper tries 0, 0.2, ..., 1")
        if self.mutation < 0:
            raise SpecError(
                f"w1 + w2 must be at most 1, got {self.w1:g} + {self.w2:g}; the rest up to 1 is mutation"
            )
        if not 0 < self.alpha < math.inf:
            raise SpecError(f"alpha must be > 0, got {self.alpha:g}; use an initial value such as 0.001")
        if self.patience < 1:
            raise SpecError(f"patience must be at least 1, got {self.patience}; the author uses 5 or 6")
        if self.alpha_max is not None and not self.alpha_max >= self.alpha:
            raise SpecError(
                f"alpha_max must be at least alpha = {self.alpha:g}, got {self.alpha_max:g}; "
                "leave it out for no limit"
            )

    @property
    def mutation(self) -> float:
        """1 - w1 - w2: the weight of the random part; exactly 0 if only a rounding error is left."""
        rest = 1 - (self.w1 + self.w2)
        return 0.0 if abs(rest) < 1e-12 else rest

    @property
    def rule(self) -> SwarmRule:
        """See `Swarm`."""
        largest = float(np.finfo(np.float64).max if self.alpha_max is None else self.alpha_max)
        return SwarmRule(FSI, self.w1, self.w2, self.mutation, self.patience, self.reset_on_success, largest)

    @property
    def first_step(self) -> float:
        """See `Swarm`."""
        return self.alpha

    def own_metrics(self, state: SwarmState) -> Metrics:
        """See `Swarm`."""
        return {"step_size": float(state.step_sizes.mean())}
