"""Local solvers: how a client trains on its own samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from shoal.core.data import Batching, Data
from shoal.core.errors import SpecError
from shoal.core.task import Task
from shoal.core.types import Context, Weights
from shoal.parts.terms import Step, Term


class Trained(NamedTuple):
    """What local training gives."""

    weights: Weights
    steps: int
    loss: Tensor  # [] the mean over the steps, each before its update


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

    def train(
        self,
        task: Task,
        start: Weights,
        data: Data,
        context: Context,
        terms: tuple[Term, ...] = (),
        shift: Mapping[str, Tensor] | None = None,
    ) -> Trained:
        """Train from `start` on the scheduled batches. `shift` is added to every gradient."""
        params = {name: value.clone().requires_grad_() for name, value in start.params.items()}
        values, buffers = list(params.values()), start.buffers
        shifts = None if shift is None else [shift[name] for name in params]
        speed: list[Tensor] = []
        rate, noise = self.rate(context.round), context.key.fold("noise")
        total, steps = torch.zeros((), device=task.device), 0
        for x, y in data.train:
            drawn = task.noise(noise.fold(steps), len(x)) if task.noise_shapes else None
            outputs, buffers = task.forward(Weights(params, buffers), x, train=True, noise=drawn)
            loss = task.objective(outputs, y)
            total, steps = total + loss.detach(), steps + 1
            for term in terms:
                loss = loss + term.loss(Step(task, Weights(params, buffers), start, outputs, x, y))
            gradients = list(torch.autograd.grad(loss, values, allow_unused=True, materialize_grads=True))
            with torch.no_grad():
                speed = self._descend(values, gradients, shifts, speed, rate)
        weights = Weights({name: value.detach() for name, value in params.items()}, buffers)
        return Trained(weights, steps, total / max(steps, 1))

    def _descend(
        self,
        values: list[Tensor],
        gradients: list[Tensor],
        shifts: list[Tensor] | None,
        speed: list[Tensor],
        rate: float,
    ) -> list[Tensor]:
        """One update in place; returns the momentum."""
        if self.weight_decay:
            torch._foreach_add_(gradients, values, alpha=self.weight_decay)
        if shifts is not None:
            torch._foreach_add_(gradients, shifts)
        if self.momentum:
            if speed:
                torch._foreach_mul_(speed, self.momentum)
                torch._foreach_add_(speed, gradients)
            else:
                speed = gradients
            gradients = speed
        torch._foreach_add_(values, gradients, alpha=-rate)
        return speed
