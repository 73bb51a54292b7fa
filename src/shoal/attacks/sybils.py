"""Sybils with noise: attackers send one common manipulation, each with its own noise, so that no two match.

Fung, Yoon, Beschastnikh: The Limitations of Federated Learning in Sybil Settings, RAID 2020 (sybils that
disguise their similarity). mu and sigma are mean and standard deviation of the attackers' own honest
updates, per coordinate.

    update <- -epsilon mu + noise sigma N(0, 1)                      -> `Sybils.lie`

With noise = 1, they are as far apart as honest clients.

Departures: the paper's sybils share poisoned data; here they share a direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from shoal.core.attack import Attack, Knows, in_unison, normal
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class Sybils(Attack):
    """Attackers all send `-epsilon` times the mean of their updates, disguised by noise."""

    knows: Knows = "colluders"

    epsilon: float = 0.5
    noise: float = 1.0  # in standard deviations of the attackers' updates

    def check(self) -> None:
        """See `Attack`."""
        if self.noise < 0:
            raise SpecError(f"noise must be at least 0, got {self.noise:g}")

    def lie(
        self, replies: Sequence[Reply], contexts: Sequence[Context], known: Sequence[Reply], cohort: int
    ) -> list[Reply]:
        """See `Attack`."""
        pairs = zip(replies, contexts, strict=True)
        return [in_unison([reply], known, self._disguised(context.key))[0] for reply, context in pairs]

    def _disguised(self, key: Key) -> Callable[[Tensor], Tensor]:
        noise = normal(key.fold("lie"))

        def change(x: Tensor) -> Tensor:
            mean = x.mean(0)
            return -self.epsilon * mean + self.noise * x.std(0, correction=0) * noise(mean)

        return change
