"""Directed deviation: attackers push every coordinate against the direction in which it would move.

Fang, Cao, Jia, Gong: Local Model Poisoning Attacks to Byzantine-Robust Federated Learning, USENIX
Security 2020, section 4.3 (trimmed mean and median, partial knowledge). mu and sigma are mean and
standard deviation of the attackers' own honest updates, per coordinate.

    update <- mu - sign(mu) u sigma,   u drawn from [3, 4] for each attacker and coordinate     -> `Fang.lie`

Departures: `near` and `far` are the paper's 3 and 4. With one attacker, sigma is 0, and it sends its own
update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.core.attack import Attack, Knows, in_unison
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class Fang(Attack):
    """Attackers push every coordinate several standard deviations against its expected direction."""

    knows: Knows = "colluders"

    near: float = 3.0  # minimum, in standard deviations
    far: float = 4.0  # maximum

    def check(self) -> None:
        """See `Attack`."""
        if not 0 <= self.near <= self.far:
            raise SpecError(f"near and far must be 0 <= near <= far, got {self.near:g} and {self.far:g}")

    def lie(
        self, replies: Sequence[Reply], contexts: Sequence[Context], known: Sequence[Reply], cohort: int
    ) -> list[Reply]:
        """See `Attack`."""
        pairs = zip(replies, contexts, strict=True)
        return [in_unison([reply], known, self._pushed(context.key))[0] for reply, context in pairs]

    def _pushed(self, key: Key) -> Callable[[Tensor], Tensor]:
        draw = key.fold("lie").torch()

        def change(x: Tensor) -> Tensor:
            drawn = torch.rand(x.shape[1:], generator=draw, dtype=torch.float64).to(x.device)
            mean, much = x.mean(0), self.near + (self.far - self.near) * drawn
            return mean - mean.sign() * much * x.std(0, correction=0)

        return change
