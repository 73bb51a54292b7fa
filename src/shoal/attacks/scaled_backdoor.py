"""Scaled backdoor: attackers train a backdoor, and scale their update up.

Bagdasaryan, Veit, Hua, Estrin, Shmatikov: How To Backdoor Federated Learning, AISTATS 2020, section 4
(model replacement).

    x, y as in `backdoor`;   update <- factor update                 -> `ScaledBackdoor.forge`

Departures: as in `backdoor`. The paper's factor is n / attackers, with which the mean becomes the
attackers' model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from shoal.attacks.backdoor import Backdoor
from shoal.core.attack import Attack, altered
from shoal.core.data import Batch
from shoal.core.key import Key
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class ScaledBackdoor(Attack):
    """Attackers train a backdoor with a patch, and multiply their update by `factor`."""

    target: int = Backdoor.target
    share: float = Backdoor.share
    size: int = Backdoor.size
    value: float = Backdoor.value
    factor: float = 5.0

    @property
    def _plain(self) -> Backdoor:
        return Backdoor(target=self.target, share=self.share, size=self.size, value=self.value)

    def check(self) -> None:
        """See `Attack`."""
        self._plain.check()

    def poison(self, samples: Batch, classes: int, key: Key) -> Batch:
        """See `Attack`."""
        return self._plain.poison(samples, classes, key)

    def forge(self, reply: Reply, context: Context) -> Reply:
        """See `Attack`."""
        return altered(reply, lambda x: self.factor * x)

    def success(self, predict: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> float | None:
        """See `Attack`."""
        return self._plain.success(predict, x, y)
