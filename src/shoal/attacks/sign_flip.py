"""Sign flipping: attackers train honestly and send the negative of their update.

Li, Xu, Chen, Giannakis, Ling: RSA: Byzantine-Robust Stochastic Aggregation Methods for Distributed Learning
from Heterogeneous Datasets, AAAI 2019, section 5 ("sign-flipping attack").

    update <- -factor update                                      -> `SignFlip.forge`

Departures: none.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core.attack import Attack, altered
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class SignFlip(Attack):
    """Attackers multiply their update by `-factor`."""

    factor: float = 1.0

    def forge(self, reply: Reply, context: Context) -> Reply:
        """See `Attack`."""
        return altered(reply, lambda x: -self.factor * x)
