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
from shoal.core.trained import Trained
from shoal.core.tree import subtract, tree_map
from shoal.core.types import Weights
from shoal.solver.formats import StepRounding


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
    rounding: StepRounding | None = None,
) -> Trained:
    """Train one client in the resident model; with `rounding`, the start must be rounded already."""
    resident = task.resident(dtype)
    resident.load(start)
    begin = start
    if terms:  # the bits of a product depend on the alignment of its operands: no shared buffers
        start = tree_map(torch.clone, start)
    names = [name for name in resident.values if name not in task.held]
    leaves, values = [resident.leaves[name] for name in names], [resident.values[name] for name in names]
    shifts = None if shift is None else [shift[name] for name in names]
    speed: list[Tensor] = []
    total, steps = torch.zeros((), device=task.device), 0
    for x, y in data.train:
        drawn = task.noise(noise.fold(steps), len(x)) if task.noise_shapes else {}
        outputs = resident.forward(x, drawn)
        loss = task.objective(outputs, y)
        total, steps = total + loss.detach(), steps + 1
        for term in terms:
            weights = Weights(resident.leaves, resident.buffers)
            loss = loss + term.loss(Step(task, weights, start, outputs, x, y, noise.fold(steps - 1)))
        found = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        gradients = [gradient.float() for gradient in found]
        with torch.no_grad():
            speed = _descend(rule, values, gradients, shifts, speed, rounding, steps - 1)
            resident.round()
        del outputs, loss, found, gradients  # so that the next step can reuse their memory
    held = Weights({name: value.detach() for name, value in resident.values.items()}, resident.buffers)
    change = None if rounding is None else subtract(held, begin)  # the start was rounded after it was sent
    return Trained(held, steps, total / max(steps, 1), borrowed=True, change=change)


def _descend(
    rule: Rule,
    values: list[Tensor],
    gradients: list[Tensor],
    shifts: list[Tensor] | None,
    speed: list[Tensor],
    rounding: StepRounding | None,
    step: int,
) -> list[Tensor]:
    """One step, in place; returns the momentum buffers."""
    if rule.weight_decay:
        torch._foreach_add_(gradients, values, alpha=rule.weight_decay)
    if shifts is not None:
        torch._foreach_add_(gradients, shifts)
    if rounding is not None:
        rounding.gradients(gradients)
    if rule.momentum:
        if speed:
            torch._foreach_mul_(speed, rule.momentum)
            torch._foreach_add_(speed, gradients)
        else:
            speed = gradients
        if rounding is not None:
            rounding.momentum(speed, step)
        gradients = speed
    torch._foreach_add_(values, gradients, alpha=-rule.rate)
    if rounding is not None:
        rounding.weights(values, step)
    return speed
