"""How the server takes the step that an aggregator gives.

An aggregator says how far, on the whole, clients want the model to move; a server optimizer says how far it
does move. The same rules as in training serve here, with the step in the place of the negative gradient.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from shoal.core.errors import SpecError

Step = Mapping[str, Tensor]  # float64, by parameter name; names that no client sent are absent


class ServerOptimizer(ABC):
    """A rule with a state of its own. It is for parameters only: a mean of buffers has no slope to follow."""

    def init(self, params: Mapping[str, Tensor]) -> Any:
        """What is remembered before the first round."""
        return ()

    @abstractmethod
    def step(self, state: Any, step: Step) -> tuple[Any, Step]:
        """The new state, and the step that is really taken.

        Parameters that are absent in `step` keep their state and are absent in the result.
        """


def check_lr(lr: float, cure: str) -> None:
    """Refuse what is no learning rate."""
    if not 0 < lr < math.inf:
        raise SpecError(f"the server's lr must be > 0, got {lr:g}; {cure}")
