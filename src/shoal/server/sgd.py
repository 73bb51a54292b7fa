"""SGD for the server: the step as it is, scaled, or with momentum.

Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification,
arXiv:1909.06335, 2019 (FedAvgM).

    v <- beta v + D,   x <- x + lr v                                            -> `ServerSgd.step`

D is the aggregator's step and v starts at 0. In the long run, momentum multiplies the step by 1 / (1 - beta).

Departures: the paper's D is x minus the mean of the clients' models and is subtracted; here it has the sign
of the step. The paper's lr is 1. Its experiments use Nesterov momentum; here it is the formula of the
paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shoal.core.errors import SpecError
from shoal.server.optimizer import ServerOptimizer, Step, check_lr


@dataclass(frozen=True)
class ServerSgd(ServerOptimizer):
    """SGD at the server: applies the averaged update with a learning rate and momentum."""

    lr: float = 1.0
    momentum: float = 0.0  # beta

    def __post_init__(self) -> None:
        check_lr(self.lr, "1 applies the step as it is")
        if not 0 <= self.momentum < 1:
            raise SpecError(
                f"the server's momentum must be in [0, 1), got {self.momentum:g}; "
                "0.9 is usual, 0 means no momentum"
            )

    def init(self, params: Mapping[str, Tensor]) -> Any:
        """See `ServerOptimizer`. v by parameter; empty without momentum."""
        if not self.momentum:
            return ()
        return {name: torch.zeros_like(value, dtype=torch.float64) for name, value in params.items()}

    def step(self, state: Any, step: Step) -> tuple[Any, Step]:
        """See `ServerOptimizer`."""
        if self.momentum:
            step = {name: self.momentum * state[name] + value for name, value in step.items()}
            state = {**state, **step}
        if self.lr == 1:  # the same tensors: FedAvg keeps its bits
            return state, step
        return state, {name: self.lr * value for name, value in step.items()}
