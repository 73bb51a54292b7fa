"""Stochastic gradient descent on a client."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shoal.core.data import Batching, Block, Data
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.trained import Trained, TrainedBlock
from shoal.core.training import Solver, Start
from shoal.core.types import Context, Setting, Weights
from shoal.kernels.formats import FormatName
from shoal.kernels.training import NO_ROUNDING
from shoal.solver import compiled_sgd, torch_sgd
from shoal.solver.formats import StepRounding, block_rounding, format_of, rounded, starts_rounded
from shoal.solver.losses import mean_losses
from shoal.solver.torch_sgd import Rule


@dataclass(frozen=True)
class Sgd(Solver):
    """Stochastic gradient descent; the momentum is reset in every round."""

    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch: int = 10
    epochs: int = 3
    schedule: Literal["constant", "exponential"] = "constant"  # of the learning rate over the rounds
    decay: float = 0.99  # factor per round, with the exponential schedule
    precision: Literal["float32", "bfloat16"] = "float32"  # of the arithmetic; weights are float32
    format: FormatName = "float32"  # of weights, gradients and momentum; the setting `format` overrides it
    rounding: Literal["stochastic", "nearest"] = "stochastic"  # of weights and momentum, to the format

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
            raise SpecError(f"decay must be in (0, 1], got {self.decay:g}; 0.99 lowers lr by 1 % per round")

    @property
    def batching(self) -> Batching:
        """See `Solver`."""
        return Batching(self.batch, self.epochs)

    def rate(self, round: int) -> float:
        """See `Solver`."""
        return self.lr * self.decay**round if self.schedule == "exponential" else self.lr

    def reach(self, round: int, steps: int) -> float:
        """See `Solver`."""
        return self.rate(round) * effective_steps(steps, self.momentum)

    def train(
        self,
        task: Task,
        start: Weights,
        data: Data,
        context: Context,
        terms: tuple[Term, ...] = (),
        shift: Mapping[str, Tensor] | None = None,
        pace: float = 1.0,
    ) -> Trained:
        """See `Solver`."""
        terms, noise, settings = active(terms), context.key.fold("noise"), [context.setting]
        if self.fits(task, terms):
            starts, block = [Start(start, terms, shift, pace=pace)], Block.of([data])
            return self.train_block(task, starts, block, [noise], context.round, 1, settings).single(0)
        dtype, rule = getattr(torch, self.precision), self._rule(context.round)
        rule = rule._replace(rate=rule.rate * pace)
        name = format_of(self.format, context.setting)
        rounding = StepRounding.of(name, self.rounding == "stochastic", noise)
        start = rounded(start, name)
        return torch_sgd.train(rule, task, start, data, noise, terms, shift, dtype, rounding)

    def losses(
        self, task: Task, weights: Sequence[Weights], data: Sequence[Data], threads: int = 1
    ) -> Tensor:
        """See `Solver`."""
        return mean_losses(task, weights, data, threads)

    def prepare(self, task: Task) -> None:
        """See `Solver`."""
        if self.fits(task, ()):
            compiled_sgd.load_kernel(task)

    def fits(self, task: Task, terms: tuple[Term, ...]) -> bool:
        """See `Solver`."""
        return self.precision == "float32" and compiled_sgd.fits(task, active(terms))

    def train_block(
        self,
        task: Task,
        starts: Sequence[Start],
        block: Block,
        keys: Sequence[Key],
        round: int,
        threads: int,
        settings: Sequence[Setting] = (),
    ) -> TrainedBlock:
        """See `Solver`."""
        rule, rounding = self._rule(round), NO_ROUNDING
        names = [format_of(self.format, setting) for setting in settings or [{}] * len(keys)]
        if set(names) != {"float32"}:
            starts = starts_rounded(starts, names)
            rounding = block_rounding(names, keys, self.rounding == "stochastic")
        reach = compiled_sgd.NO_REACH
        if starts[0].controls:
            steps = np.diff(block.client_ptr).tolist()
            far = [start.pace * self.reach(round, n) for start, n in zip(starts, steps, strict=True)]
            reach = np.array(far, np.float32)
        terms = active(starts[0].terms)
        return compiled_sgd.train(rule, task, starts, terms, block, keys, threads, rounding, reach)

    def _rule(self, round: int) -> Rule:
        return Rule(self.rate(round), self.momentum, self.weight_decay)


def effective_steps(steps: int, momentum: float) -> float:
    """The number of plain steps that move as far as `steps` steps with momentum, for a constant gradient."""
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def active(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """The terms that add anything: a term of weight 0 must not even change the order of a sum."""
    return tuple(term for term in terms if term.active)
