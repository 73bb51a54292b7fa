"""Same value: attackers send an update whose coordinates are all equal.

Li, Xu, Chen, Giannakis, Ling: RSA: Byzantine-Robust Stochastic Aggregation Methods for Distributed Learning
from Heterogeneous Datasets, AAAI 2019, section 5 ("same-value attack").

    update <- value (1, 1, ..., 1)                                -> `SameValue.forge`

Departures: the paper sends models or gradients with equal coordinates; here it is the update.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from shoal.core.attack import Attack, altered
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class SameValue(Attack):
    """Attackers send an update whose coordinates are all `value`."""

    value: float = 0.1

    def forge(self, reply: Reply, context: Context) -> Reply:
        """See `Attack`."""
        return altered(reply, lambda x: torch.full_like(x, self.value))
