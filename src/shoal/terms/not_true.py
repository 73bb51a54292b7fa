"""The term of FedNTD: not-true distillation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.core.errors import SpecError
from shoal.core.task import Task
from shoal.core.term import Step, Term


@dataclass(frozen=True)
class NotTrue(Term):
    """`beta tau^2 KL(q^start || q)`: distils the sent model's predictions for all classes but the true one.

    q is the softmax at temperature tau over all classes except the true one.
    """

    beta: float
    tau: float

    def __post_init__(self) -> None:
        if not 0 <= self.beta < math.inf:
            raise SpecError(f"beta must be >= 0, got {self.beta:g}; FedNTD's authors use 1")
        if not 0 < self.tau < math.inf:
            raise SpecError(f"tau must be > 0, got {self.tau:g}; FedNTD's authors use 1")

    @property
    def active(self) -> bool:
        """See `Term`."""
        return self.beta != 0

    def check(self, task: Task) -> None:
        """See `Term`."""
        task.check_softmax("not-true distillation")

    def loss(self, step: Step) -> Tensor:
        """See the class."""
        with torch.no_grad():
            before = self._log_softmax(step.task.forward(step.start, step.x)[0], step.y)
        gap = before.exp() * (before - self._log_softmax(step.outputs, step.y))
        return self.beta * self.tau**2 * step.mean(gap.sum(1))

    def _log_softmax(self, outputs: Tensor, y: Tensor) -> Tensor:
        """[n, classes]: log q, with 0 for the true class."""
        true = y[:, None] == torch.arange(outputs.shape[1], device=y.device)
        return (outputs / self.tau).masked_fill(true, -math.inf).log_softmax(1).masked_fill(true, 0.0)
