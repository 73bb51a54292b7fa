"""A little is enough: attackers shift the mean as far as they can without being conspicuous.

Baruch, Baruch, Goldberg: A Little Is Enough: Circumventing Defenses For Distributed Learning, NeurIPS
2019, Algorithm 3. Of n clients, m attack; mu and sigma are mean and standard deviation of the attackers'
own honest updates, per coordinate.

    s = floor(n / 2 + 1) - m     honest clients that must be farther out than attackers    -> `z_max`
    z = the largest z with Phi(z) < (n - m - s) / (n - m)                                  -> `z_max`
    update <- mu - z sigma                                                                 -> `Alie.lie`

Departures: a majority of attackers needs no supporters; to keep z finite, its probability is kept
1 / (2 (n - m)) away from 0 and 1, and z = 0 without honest clients. With one attacker, sigma is 0, and the
attack has no effect. The paper adds z sigma; its code subtracts it, and so does this implementation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from shoal.core.attack import Attack, Knows, in_unison
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class Alie(Attack):
    """Attackers all send the mean of their updates, shifted by `z` standard deviations."""

    knows: Knows = "colluders"

    z: float | None = None  # by default the largest that the numbers of clients and attackers allow

    def lie(
        self, replies: Sequence[Reply], contexts: Sequence[Context], known: Sequence[Reply], cohort: int
    ) -> list[Reply]:
        """See `Attack`."""
        z = z_max(cohort, len(replies)) if self.z is None else self.z
        return in_unison(replies, known, lambda x: x.mean(0) - z * x.std(0, correction=0))


def z_max(clients: int, attackers: int) -> float:
    """The largest shift, in standard deviations, with which a majority still supports the attackers."""
    honest = clients - attackers
    if not honest:
        return 0.0
    beyond = math.floor(clients / 2 + 1) - attackers
    share = (honest - beyond) / honest
    return NormalDist().inv_cdf(min(max(share, 1 / (2 * honest)), 1 - 1 / (2 * honest)))
