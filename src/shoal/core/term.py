"""The protocol of a term: what a client adds to its training loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import NamedTuple

from torch import Tensor

from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.types import Weights


class Step(NamedTuple):
    """One training step, as a term sees it."""

    task: Task
    weights: Weights
    start: Weights  # the weights that training began from
    outputs: Tensor
    x: Tensor
    y: Tensor
    key: Key  # for the random numbers of this step

    def mean(self, each: Tensor) -> Tensor:
        """[]: the mean of [n] values over the samples of the step."""
        return each.mean()


class Term(ABC):
    """A differentiable term that is added to the loss of a training step."""

    @property
    def active(self) -> bool:
        """Whether the term adds anything: False for a weight of 0."""
        return True

    @property
    def kind(self) -> Hashable:
        """Equal for terms whose clients can be trained in one call; by default, unique to this object."""
        return id(self)

    def check(self, task: Task) -> None:  # noqa: B027  # most terms suit every task
        """Raise `SpecError` if the term makes no sense for this task."""

    @abstractmethod
    def loss(self, step: Step) -> Tensor:
        """[]: the value that is added to the loss."""
