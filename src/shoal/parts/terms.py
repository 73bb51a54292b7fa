"""Terms that a client adds to its training loss."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.types import Weights


class Step(NamedTuple):
    """What a term may look at."""

    task: Task
    weights: Weights
    start: Weights  # the weights that training began from
    outputs: Tensor
    x: Tensor
    y: Tensor
    mask: Tensor | None = None  # [n]: 1 for samples, 0 for padding; None: there is no padding
    key: Key | None = None  # the step's own; None inside a block of clients, where nothing can be drawn

    def mean(self, each: Tensor) -> Tensor:
        """[]: the mean over the samples of [n] values."""
        if self.mask is None:
            return each.mean()
        return (each * self.mask).sum() / self.mask.sum().clamp(min=1)


class Term(ABC):
    """A differentiable addition to the loss of a step."""

    @property
    def active(self) -> bool:
        """Whether it adds anything: False for a weight of 0."""
        return True

    def check(self, task: Task) -> None:  # noqa: B027  # most terms suit every task
        """Raise `SpecError` if it has no meaning for this task."""

    @abstractmethod
    def loss(self, step: Step) -> Tensor:
        """[]: the addition."""


@dataclass(frozen=True)
class Proximal(Term):
    """`(mu / 2) ||w - w_start||^2`: keeps a client near the model that it was sent."""

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


@dataclass(frozen=True)
class NotTrue(Term):
    """`beta tau^2 KL(q^start || q)`: keeps what the sent model says of the classes that a sample is not of.

    q is the softmax at temperature tau over all classes but the true one.
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
        """[n, classes]: log q, and 0 in the place of the true class."""
        true = y[:, None] == torch.arange(outputs.shape[1], device=y.device)
        return (outputs / self.tau).masked_fill(true, -math.inf).log_softmax(1).masked_fill(true, 0.0)


TERMS: dict[str, type[Term]] = {"proximal": Proximal, "not_true": NotTrue}
