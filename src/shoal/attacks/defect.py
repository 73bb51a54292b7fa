"""Defection: attackers are honest first, gain trust, and then flip the signs of their updates.

The honest start is that of on-off attacks on reputation systems: Perrone, Nelson: A Study of On-Off Attack
Models for Wireless Ad Hoc Networks, 2006.

    update <- update before round `first`, -factor update from then on          -> `Defect.forge`

Departures: it is sign_flip with a late `first`, as a separate column of the arena.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core.attack import Attack, altered
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class Defect(Attack):
    """Attackers are honest for 20 rounds, and multiply their update by `-factor` from then on."""

    first: int = 21

    factor: float = 1.0

    def forge(self, reply: Reply, context: Context) -> Reply:
        """See `Attack`."""
        return altered(reply, lambda x: -self.factor * x)
