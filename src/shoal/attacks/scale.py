"""Scaling: attackers return a multiple of their update, so that it outweighs the others.

Bagdasaryan, Veit, Hua, Estrin, Shmatikov: How To Backdoor Federated Learning, AISTATS 2020, section 4 (model
replacement: with the factor n / attackers an update survives the mean whole).

    update <- factor update                                       -> `Scale.forge`

Departures: what is scaled is the honest update; the paper scales a backdoored one.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core.attack import Attack, altered
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class Scale(Attack):
    """Attackers return `factor` times their update."""

    factor: float = 10.0

    def forge(self, reply: Reply, context: Context) -> Reply:
        """See `Attack`."""
        return altered(reply, lambda x: self.factor * x)
