"""Particle swarm optimisation: the classical swarm with personal bests, a baseline for FSI.

Kennedy, Eberhart: Particle Swarm Optimization, ICNN 1995; with the inertia of Shi, Eberhart: A Modified
Particle Swarm Optimizer, ICEC 1998, and the numbers of Clerc, Kennedy: The Particle Swarm - Explosion,
Stability, and Convergence in a Multidimensional Complex Space, IEEE Trans. Evol. Comput. 6(1), 2002.

    v_s <- omega v_s + c1 r1 (b_s - x_s) + c2 r2 (g - x_s)         -> `kernels.swarm.advance`
    x_s <- x_s + v_s
    b_s <- x_s if that has the smaller loss

b_s is the best point that particle s has found, and g is the best of these; r1 and r2 in [0, 1) are drawn for
each coordinate of each particle. The server knows the losses as sums over clients (see `parts.swarm`): it
sends the x_s and keeps the b_s.

Departures: particles start at rest, in [0, `initial_range`), as in FSI. A velocity that overflows becomes
0, and its particle returns to its best point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.core.errors import SpecError
from shoal.parts.landscape import LossForm
from shoal.parts.swarm import PSO, Swarm, SwarmRule


@dataclass(frozen=True)
class Pso(Swarm):
    """Runs classical particle swarm optimisation; clients return only losses."""

    epochs: int = 100
    particles: int = 20
    inertia: float = 0.7298
    c1: float = 1.49618
    c2: float = 1.49618
    initial_range: float = 0.01
    loss: LossForm = "stable"

    def __post_init__(self) -> None:
        self.check_fields()
        for name, value in (("inertia", self.inertia), ("c1", self.c1), ("c2", self.c2)):
            if not 0 <= value < math.inf:
                raise SpecError(f"{name} must be >= 0, got {value:g}; 0.7298, 1.49618 and 1.49618 are usual")

    @property
    def rule(self) -> SwarmRule:
        """See `Swarm`."""
        return SwarmRule(PSO, self.inertia, self.c1, self.c2, 1, False, 1.0)
