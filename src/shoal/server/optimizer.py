"""Server optimizers: how the server applies the step that an aggregator computes.

The step takes the place of the negative gradient in the well-known optimizers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from shoal.core.errors import SpecError

Step = Mapping[str, Tensor]  # float64, by parameter name; parameters that no client sent are absent


class ServerOptimizer(ABC):
    """An optimizer with a state of its own, for parameters only: buffers have no gradients."""

    def init(self, params: Mapping[str, Tensor]) -> Any:
        """The state before the first round."""
        return ()

    @abstractmethod
    def step(self, state: Any, step: Step) -> tuple[Any, Step]:
        """The new state, and the step to apply.

        Parameters that are absent in `step` keep their state and are absent in the result.
        """


def check_lr(lr: float, cure: str) -> None:
    """Raise `SpecError` for an invalid learning rate."""
    if not 0 < lr < math.inf:
        raise SpecError(f"the server's lr must be > 0, got {lr:g}; {cure}")
