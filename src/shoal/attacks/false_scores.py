"""False scores: attackers flip the signs of their updates, and claim the best training result.

It targets rules that trust what clients report about themselves, such as the paper's ranks in DSVD-FL: such a
claim costs nothing.

    update <- -factor update,   score <- claim where the reply has one        -> `FalseScores.forge`

Departures: none; the attack is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from shoal.core.attack import Attack, altered
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class FalseScores(Attack):
    """Attackers flip the signs of their updates, and claim the best score."""

    factor: float = 1.0
    claim: float = 1e9

    def forge(self, reply: Reply, context: Context) -> Reply:
        """See `Attack`."""
        lie = altered(reply, lambda x: -self.factor * x)
        if "score" not in getattr(lie.payload, "_fields", ()):
            return lie
        score = torch.full_like(lie.payload.score, self.claim)
        return lie._replace(payload=lie.payload._replace(score=score))
