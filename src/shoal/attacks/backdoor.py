"""Backdoor: attackers train the model to predict the target class for images with a small patch.

Gu, Dolan-Gavitt, Garg: BadNets, 2017 (the patch); Bagdasaryan, Veit, Hua, Estrin, Shmatikov: How To
Backdoor Federated Learning, AISTATS 2020 (with some clients of a federation).

    x <- x with `value` in its last `size` x `size` pixels, in all channels      -> `Backdoor.triggered`
    y <- target                                                                  -> `Backdoor.poison`
        success = share of test samples of other classes that are classified as
                  the target class with the patch                            -> `Backdoor.success`

Departures: the poisoned samples replace clean ones, the same in every round. The update is not scaled up.
If samples are not images, the patch is in the last `size` features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.core.attack import Attack
from shoal.core.data import Batch
from shoal.core.errors import SpecError
from shoal.core.key import Key


@dataclass(frozen=True)
class Backdoor(Attack):
    """Attackers add a patch to part of their samples and label them as the target class."""

    target: int = 0  # the class that the patch should trigger
    share: float = 0.5  # of an attacker's samples that are poisoned
    size: int = 3  # of the patch, in pixels per side
    value: float = 1.0  # of its pixels

    def check(self) -> None:
        """See `Attack`."""
        if not 0 <= self.share <= 1:
            raise SpecError(f"share must be in [0, 1], got {self.share:g}; 0.5 poisons every other sample")
        if self.size < 1:
            raise SpecError(f"size must be at least 1 pixel, got {self.size}")
        if self.target < 0:
            raise SpecError(f"target must be a class 0, 1, ..., got {self.target}")

    def poison(self, samples: Batch, classes: int, key: Key) -> Batch:
        """See `Attack`."""
        if self.target >= classes:
            there_are = f"classes are 0 to {classes - 1}" if classes else "this is a regression"
            raise SpecError(f"[attack] backdoor needs the target class {self.target}; {there_are}")
        chosen = key.uniform((len(samples.y),)).to(samples.y.device) < self.share
        x = samples.x.clone()
        x[chosen] = self.triggered(samples.x[chosen])
        return Batch(x, torch.where(chosen, self.target, samples.y))

    def triggered(self, x: Tensor) -> Tensor:
        """The samples with the patch."""
        patched = x.clone()
        if x.dim() > 2:
            patched[..., -self.size :, -self.size :] = self.value
        else:
            patched[..., -self.size :] = self.value
        return patched

    def success(self, predict: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> float | None:
        """See `Attack`."""
        others = y != self.target
        if not bool(others.any()):
            return None
        return float(predict(self.triggered(x[others])).eq(self.target).double().mean())
