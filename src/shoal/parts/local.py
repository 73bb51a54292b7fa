"""Local solvers: how a client trains on its own samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from shoal.core.data import Batching, Data, Lanes
from shoal.core.errors import SpecError
from shoal.core.task import Task
from shoal.core.types import Context, Weights
from shoal.parts import compiled, descent
from shoal.parts.descent import Rule, Trained
from shoal.parts.terms import Term


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent; the momentum starts anew every time."""

    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch: int = 10
    epochs: int = 3
    schedule: Literal["constant", "exponential"] = "constant"  # of the learning rate over the rounds
    decay: float = 0.99  # a round, with the exponential schedule
    precision: Literal["float32", "bfloat16"] = "float32"  # of the products; weights are kept in float32

    def __post_init__(self) -> None:
        if not 0 < self.lr < math.inf:
            raise SpecError(f"lr must be > 0, got {self.lr:g}; 0.01 to 0.1 is usual")
        if not 0 <= self.momentum < 1:
            raise SpecError(f"momentum must be in [0, 1), got {self.momentum:g}; 0.5 or 0.9 is usual")
        if self.weight_decay < 0:
            raise SpecError(f"weight_decay must be >= 0, got {self.weight_decay:g}")
        for name, value in (("batch", self.batch), ("epochs", self.epochs)):
            if value < 1:
                raise SpecError(f"{name} must be at least 1, got {value}")
        if not 0 < self.decay <= 1:
            raise SpecError(f"decay must be in (0, 1], got {self.decay:g}; 0.99 loses 1 % a round")

    @property
    def batching(self) -> Batching:
        """How samples are dealt into steps."""
        return Batching(self.batch, self.epochs)

    def rate(self, round: int) -> float:
        """The learning rate in a round, counted from 0."""
        return self.lr * self.decay**round if self.schedule == "exponential" else self.lr

    def fuses(self, task: Task, terms: tuple[Term, ...] = ()) -> bool:
        """Whether the compiled kernels train this model: then a block of clients is one call."""
        return self.precision == "float32" and compiled.fits(task, active(terms))

    def train(
        self,
        task: Task,
        start: Weights,
        data: Data | Lanes,
        context: Context,
        terms: tuple[Term, ...] = (),
        shift: Mapping[str, Tensor] | None = None,
    ) -> Trained:
        """Train from `start` on the scheduled batches. `shift` is added to every gradient."""
        terms = active(terms)
        rule = Rule(self.rate(context.round), self.momentum, self.weight_decay)
        if isinstance(data, Lanes):
            return descent.functional(rule, task, start, data, terms, shift)
        if self.fuses(task, terms):
            return compiled.train(rule, task, start, data, terms, shift)
        dtype = getattr(torch, self.precision)
        return descent.resident(rule, task, start, data, context.key.fold("noise"), terms, shift, dtype)


def active(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """The terms that add anything: one of weight 0 must not even change the order of a sum."""
    return tuple(term for term in terms if term.active)
