"""Gradient descent with torch, for one client, in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.core.data import Data
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.term import Step, Term
from shoal.core.training import Trained
from shoal.core.tree import tree_map
from shoal.core.types import Weights


class Rule(NamedTuple):
    """The hyper-parameters of a step of gradient descent."""

    rate: float
    momentum: float
    weight_decay: float


def train(
    rule: Rule,
    task: Task,
    start: Weights,
    data: Data,
    noise: Key,
    terms: tuple[Term, ...],
    shift: Mapping[str, Tensor] | None,
    dtype: torch.dtype,
) -> Trained:
    """Train one client in the resident model."""
    live = task.live(dtype)
    live.load(start)
    if terms:  # the bits of a product depend on the alignment of its operands: no shared buffers
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
            loss = loss + term.loss(Step(task, weights, start, outputs, x, y, noise.fold(steps - 1)))
        found = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        gradients = [gradient.float() for gradient in found]
        with torch.no_grad():
            speed = _descend(rule, values, gradients, shifts, speed)
            live.round()
        del outputs, loss, found, gradients  # so that the next step can reuse their memory
    held = Weights({name: value.detach() for name, value in live.values.items()}, live.buffers)
    return Trained(held, steps, total / max(steps, 1), borrowed=True)


def _descend(
    rule: Rule,
    values: list[Tensor],
    gradients: list[Tensor],
    shifts: list[Tensor] | None,
    speed: list[Tensor],
) -> list[Tensor]:
    """One step, in place; returns the momentum buffers."""
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
