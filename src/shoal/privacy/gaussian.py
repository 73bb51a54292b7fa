"""Gaussian noise on everything that a client sends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.privacy import Privacy
from shoal.core.tree import tree_map
from shoal.core.types import Reply


@dataclass(frozen=True)
class GaussianNoise(Privacy):
    """Adds Gaussian noise to every number that a client sends; clients with few samples do not take part.

    The noise is not calibrated to a sensitivity, so there is no (epsilon, delta) guarantee: it only blurs the
    information in repeated replies.
    """

    noise: float  # standard deviation
    min_samples: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.noise < math.inf:
            raise SpecError(f"noise must be a standard deviation of at least 0, got {self.noise:g}")
        if self.min_samples < 0:
            raise SpecError(f"min_samples must be at least 0, got {self.min_samples}")

    def protect(self, reply: Reply, key: Key) -> Reply:
        """See `Privacy`."""
        draws = key.numpy()

        def noisy(value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.is_floating_point():
                return value
            return value + value.new_tensor(draws.normal(0.0, self.noise, tuple(value.shape)))

        return reply._replace(payload=tree_map(noisy, reply.payload))
