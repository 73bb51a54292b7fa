"""Garbage: attackers send numbers that no server accepts.

    update <- 1e30 everywhere                                     -> `Garbage.forge`

The gate refuses their replies, so that only the honest clients remain. Uniform FedAvg under this attack is
the arena's oracle: the result of a defence that knows all attackers.

Departures: none; the attack is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from shoal.core.attack import Attack, altered
from shoal.core.types import Context, Reply

HUGE = 1e30  # its square overflows float32


@dataclass(frozen=True)
class Garbage(Attack):
    """Attackers send numbers so large that the server refuses their replies."""

    def forge(self, reply: Reply, context: Context) -> Reply:
        """See `Attack`."""
        return altered(reply, lambda x: torch.full_like(x, HUGE))
