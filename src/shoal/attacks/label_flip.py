"""Label flipping: attackers train honestly, on wrong labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shoal.core.attack import Attack, check_fraction
from shoal.core.data import Data
from shoal.core.errors import SpecError
from shoal.core.key import Key


@dataclass(frozen=True)
class LabelFlip(Attack):
    """Attackers take class y for class C - 1 - y."""

    fraction: float = 0.1

    def __post_init__(self) -> None:
        check_fraction(self.fraction)

    def poison(self, data: Data, key: Key) -> Data:
        """See `Attack`."""
        if not data.classes:
            raise SpecError("[attack] label_flip needs class labels, and this is a regression; use sign_flip")
        x, y = data.all
        return replace(data, x=x, y=data.classes - 1 - y, rows=np.arange(len(y)))
