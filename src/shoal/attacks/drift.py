"""Slow drift: attackers turn from honest updates to their opposites, a little more in every round.

After Chan-Tin, Heorhiadi, Hopper, Kim: The Frog-Boiling Attack, ACM TISSEC 14(3), 2011: manipulations that
grow slowly pass as normal to an adaptive defence.

    update <- (1 - min(rate t, 1 + factor)) update in round t                 -> `Drift.forge`

By default, the attackers send a zero update after 20 rounds, and the opposite of their update after 40.

Departures: the paper is about network coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core.attack import Attack, altered
from shoal.core.errors import SpecError
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class Drift(Attack):
    """Attackers turn from honest updates to their opposites, a little more in every round."""

    rate: float = 0.05  # change per round
    factor: float = 1.0  # scale of the opposite update in the end

    def check(self) -> None:
        """See `Attack`."""
        for name, value in (("rate", self.rate), ("factor", self.factor)):
            if not value > 0:
                raise SpecError(f"{name} must be > 0, got {value:g}")

    def forge(self, reply: Reply, context: Context) -> Reply:
        """See `Attack`."""
        kept = 1 - min(self.rate * (context.round + 2 - self.first), 1 + self.factor)
        return altered(reply, lambda x: kept * x)
