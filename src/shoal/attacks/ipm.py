"""Inner product manipulation: attackers make the inner product of the mean with the true mean negative.

Xie, Koyejo, Gupta: Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation, UAI
2019. mu is the mean of the attackers' own honest updates.

    update <- -epsilon mu                                         -> `Ipm.lie`

A small epsilon deceives Krum and the median; the mean changes its direction at epsilon > (n - m) / m for m
attackers among n clients.

Departures: the paper's attackers know the honest clients' updates; here they know only their own, unless
`knows = "all"`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.core.attack import Attack, Knows, in_unison
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class Ipm(Attack):
    """Attackers all send `-epsilon` times the mean of their updates."""

    knows: Knows = "colluders"

    epsilon: float = 0.5

    def lie(
        self, replies: Sequence[Reply], contexts: Sequence[Context], known: Sequence[Reply], cohort: int
    ) -> list[Reply]:
        """See `Attack`."""
        return in_unison(replies, known, lambda x: -self.epsilon * x.mean(0))
