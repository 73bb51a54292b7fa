"""The term of FedProx: the proximal term."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.core.errors import SpecError
from shoal.core.term import Step, Term


@dataclass(frozen=True)
class Proximal(Term):
    """`(mu / 2) ||w - w_start||^2`: keeps a client close to the model that it was sent."""

    mu: float

    def __post_init__(self) -> None:
        if not 0 <= self.mu < math.inf:
            raise SpecError(f"mu must be >= 0, got {self.mu:g}; FedProx's authors tried 0.001 to 1")

    @property
    def active(self) -> bool:
        """See `Term`."""
        return self.mu != 0

    def loss(self, step: Step) -> Tensor:
        """See the class."""
        distances = [
            (value - step.start.params[name]).square().sum() for name, value in step.weights.params.items()
        ]
        return 0.5 * self.mu * torch.stack(distances).sum()
