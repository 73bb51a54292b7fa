"""Min-sum: attackers send the most harmful update whose total distance to others is that of an honest one.

Shejwalkar, Houmansadr: Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for
Federated Learning, NDSS 2021, section IV-C. x_i are the attackers' own honest updates, mu is their mean.

    update <- mu + gamma p, with p as in min_max                                           -> `MinSum.lie`
    gamma = the largest one with sum_i |mu + gamma p - x_i|^2 <= max_i sum_j |x_i - x_j|^2  -> `MinSum.lie`

Departures: gamma is computed exactly: around the mean, the left side is sum_i |x_i - mu|^2 + n gamma^2
|p|^2. The paper uses bisection. With one attacker, the attack has no effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shoal.attacks.min_max import DIRECTIONS, Direction, Distances
from shoal.core.attack import Attack, Knows, in_unison
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class MinSum(Attack):
    """Attackers all send the mean of their updates, shifted as far as sums of squared distances allow."""

    knows: Knows = "colluders"

    direction: Direction = "std"

    def lie(
        self, replies: Sequence[Reply], contexts: Sequence[Context], known: Sequence[Reply], cohort: int
    ) -> list[Reply]:
        """See `Attack`."""
        push = DIRECTIONS[self.direction]
        found = Distances.of(known, push)
        room = max(float(found.between.sum(1).max() - found.away.sum()), 0.0)
        gamma = math.sqrt(room / (len(known) * found.length)) if found.length else 0.0
        return in_unison(replies, known, lambda x: x.mean(0) + gamma * push(x))
