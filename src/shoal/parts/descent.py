"""Descent with torch: for one client in place, and as a pure function that `vmap` can map over clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.core.data import Data, LaneBatch, Lanes
from shoal.core.key import Key
from shoal.core.task import LOSSES, Task
from shoal.core.tree import subtract, tree_map
from shoal.core.types import Weights
from shoal.parts.terms import Step, Term


class Rule(NamedTuple):
    """The numbers of a step of gradient descent."""

    rate: float
    momentum: float
    weight_decay: float


@dataclass(frozen=True)
class Trained:
    """What local training gives; in a block of clients everything has a client axis.

    Until the next client trains, the weights may lie in the resident model: `update` reads them there.
    """

    held: Weights
    steps: int | Tensor
    loss: Tensor  # [] the mean over the steps, each before its update and without terms
    borrowed: bool = False
    change: Weights | None = None  # what `update` gives, where it is known already

    @property
    def weights(self) -> Weights:
        """The trained weights, to keep."""
        if not self.borrowed:
            return self.held
        return Weights(*({name: _plain(value) for name, value in part.items()} for part in self.held))

    def update(self, start: Weights) -> Weights:
        """What training changed: the trained weights less those that it started from."""
        if self.change is not None:
            return self.change
        with torch.no_grad():
            change: Weights = subtract(self.held, start)
        return change


def _plain(value: Tensor) -> Tensor:
    return value.detach().clone(memory_format=torch.contiguous_format)


def resident(
    rule: Rule,
    task: Task,
    start: Weights,
    data: Data,
    noise: Key,
    terms: tuple[Term, ...],
    shift: Mapping[str, Tensor] | None,
    dtype: torch.dtype,
) -> Trained:
    """One client, in the resident model."""
    live = task.live(dtype)
    live.load(start)
    if terms:  # the last bits of a product depend on where its operands lie: not in somebody's buffer
        start = tree_map(torch.clone, start)
    leaves, values = list(live.leaves.values()), list(live.values.values())
    shifts = None if shift is None else [shift[name] for name in live.values]
    speed: list[Tensor] = []
    total, steps = torch.zeros((), device=task.device), 0
    for x, y in data.train:
        drawn = task.noise(noise.fold(steps), len(x)) if task.noise_shapes else {}
        outputs = live.forward(x, drawn)
        loss = task.objective(outputs, y)
        total, steps = total + loss.detach(), steps + 1
        for term in terms:
            weights = Weights(live.leaves, live.buffers)
            loss = loss + term.loss(Step(task, weights, start, outputs, x, y, key=noise.fold(steps - 1)))
        found = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        gradients = [gradient.float() for gradient in found]
        with torch.no_grad():
            speed = _descend(rule, values, gradients, shifts, speed)
            live.round()
        del outputs, loss, found, gradients  # so that the next step can use their memory
    held = Weights({name: value.detach() for name, value in live.values.items()}, live.buffers)
    return Trained(held, steps, total / max(steps, 1), borrowed=True)


def _descend(
    rule: Rule,
    values: list[Tensor],
    gradients: list[Tensor],
    shifts: list[Tensor] | None,
    speed: list[Tensor],
) -> list[Tensor]:
    """One update in place; returns the momentum."""
    if rule.weight_decay:
        torch._foreach_add_(gradients, values, alpha=rule.weight_decay)
    if shifts is not None:
        torch._foreach_add_(gradients, shifts)
    if rule.momentum:
        if speed:
            torch._foreach_mul_(speed, rule.momentum)
            torch._foreach_add_(speed, gradients)
        else:
            speed = gradients
        gradients = speed
    torch._foreach_add_(values, gradients, alpha=-rule.rate)
    return speed


def functional(
    rule: Rule,
    task: Task,
    start: Weights,
    data: Lanes,
    terms: tuple[Term, ...],
    shift: Mapping[str, Tensor] | None,
) -> Trained:
    """One client of a block under `vmap`. Steps beyond a client's own change nothing."""
    params, buffers = dict(start.params), dict(start.buffers)
    speed = {name: torch.zeros_like(value) for name, value in params.items()}
    total, done = torch.zeros(()), torch.zeros(())
    gradient_of = torch.func.grad_and_value(partial(_objective, task, start, terms), has_aux=True)
    for batch in data.train:
        gradients, (_, (loss, after)) = gradient_of(params, buffers, batch)
        own = batch.mask.any()
        for name, value in params.items():
            gradient = gradients[name] + rule.weight_decay * value
            gradient = gradient if shift is None else gradient + shift[name]
            speed[name] = rule.momentum * speed[name] + gradient
            params[name] = torch.where(own, value - rule.rate * speed[name], value)
        buffers = {name: torch.where(own, after[name], value) for name, value in buffers.items()}
        total, done = total + torch.where(own, loss.detach(), 0.0), done + own
    return Trained(Weights(params, buffers), done, total / done.clamp(min=1))


def _objective(
    task: Task,
    start: Weights,
    terms: tuple[Term, ...],
    params: dict[str, Tensor],
    buffers: dict[str, Tensor],
    batch: LaneBatch,
) -> tuple[Tensor, tuple[Tensor, Mapping[str, Tensor]]]:
    """What is descended; and the loss without terms, and the buffers after the pass."""
    outputs, after = task.forward(Weights(params, buffers), batch.x, train=True, noise=batch.noise)
    each = LOSSES[task.loss].each(outputs, batch.y).sum(1)
    loss = (each * batch.mask).sum() / batch.mask.sum().clamp(min=1)
    step = Step(task, Weights(params, after), start, outputs, batch.x, batch.y, batch.mask)
    return loss + sum(term.loss(step) for term in terms), (loss, after)
