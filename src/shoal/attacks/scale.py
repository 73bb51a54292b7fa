"""Scaling: attackers multiply their update, so that it dominates the mean.

Bagdasaryan, Veit, Hua, Estrin, Shmatikov: How To Backdoor Federated Learning, AISTATS 2020, section 4
(model replacement: with the factor n / attackers, the mean becomes the attackers' model).

    update <- factor update                                       -> `Scale.forge`

Departures: the honest update is scaled; the paper scales a backdoored one.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core.attack import Attack, altered
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class Scale(Attack):
    """Attackers multiply their update by `factor`."""

    factor: float = 10.0

    def forge(self, reply: Reply, context: Context) -> Reply:
        """See `Attack`."""
        return altered(reply, lambda x: self.factor * x)
