"""Label flipping: attackers train honestly on wrong labels.

Tolpegin, Truex, Gursoy, Liu: Data Poisoning Attacks Against Federated Learning Systems, ESORICS 2020 (one
source class to one target class); Fang, Cao, Jia, Gong: Local Model Poisoning Attacks to Byzantine-Robust
Federated Learning, USENIX Security 2020 (all classes).

    all:               y <- C - 1 - y                             -> `LabelFlip.poison`
    source to target:  y <- target where y = source

Departures: `labels` flips only a share of the labels, the same in every round.
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
class LabelFlip(Attack):
    """Attackers train on flipped labels: class y becomes C - 1 - y, or one class becomes another."""

    source: int | None = None  # the class that is relabelled; None: all classes
    target: int | None = None  # its new label
    labels: float = 1.0  # the share of labels that is flipped

    def check(self) -> None:
        """See `Attack`."""
        if (self.source is None) != (self.target is None):
            given = f"source = {self.source}, target = {self.target}"
            raise SpecError(f"give source and target, or neither, got {given}")
        if min(self.source or 0, self.target or 0) < 0:
            raise SpecError(f"classes are counted from 0, got {min(self.source or 0, self.target or 0)}")
        if self.source is not None and self.source == self.target:
            raise SpecError(f"target must differ from source, got {self.target} for both")
        if not 0 <= self.labels <= 1:
            raise SpecError(f"labels must be in [0, 1], got {self.labels:g}; 0.5 flips every other label")

    def poison(self, samples: Batch, classes: int, key: Key) -> Batch:
        """See `Attack`."""
        if not classes:
            raise SpecError("[attack] label_flip needs class labels, but this is a regression; use sign_flip")
        if self.source is None or self.target is None:
            flipped = classes - 1 - samples.y
        elif max(self.source, self.target) >= classes:
            raise SpecError(
                f"[attack] there is no class {max(self.source, self.target)}; classes are 0 to {classes - 1}"
            )
        else:
            flipped = torch.where(samples.y == self.source, self.target, samples.y)
        chosen = key.uniform((len(flipped),)).to(flipped.device) < self.labels
        return samples._replace(y=torch.where(chosen, flipped, samples.y))

    def success(self, predict: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> float | None:
        """The share of test samples of the source class that are classified as the target class."""
        if self.source is None or self.target is None or not bool((y == self.source).any()):
            return None
        return float(predict(x[y == self.source]).eq(self.target).double().mean())
