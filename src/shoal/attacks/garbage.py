"""Garbage: attackers send numbers that no server takes.

    update <- 1e30 everywhere                                     -> `Garbage.forge`

The gate refuses their replies, so the honest clients are left to themselves. Uniform FedAvg against this
attack is the arena's oracle: what a defence would reach that knows who lies.

Departures: none; the attack is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from shoal.core.attack import Attack, altered
from shoal.core.types import Context, Reply

HUGE = 1e30  # its square is no float32


@dataclass(frozen=True)
class Garbage(Attack):
    """Attackers send numbers so large that the server refuses their replies."""

    def forge(self, reply: Reply, context: Context) -> Reply:
        """See `Attack`."""
        return altered(reply, lambda x: torch.full_like(x, HUGE))
