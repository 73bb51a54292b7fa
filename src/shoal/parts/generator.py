"""A generator of features: from noise and a class to what enters a model's last layer for such a sample.

One hidden layer with BatchNorm and ReLU, then a linear one. As everywhere, its weights are an argument.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shoal.core.key import Key
from shoal.core.tree import zeros_like
from shoal.core.types import Weights


def new_generator(noise: int, classes: int, hidden: int, width: int, key: Key) -> Weights:
    """Initial weights, drawn from the key as torch's layers draw them."""
    with key.seeded():
        layers = {"fc1": nn.Linear(noise + classes, hidden), "fc": nn.Linear(hidden, width)}
    params = {
        f"{layer}.{name}": value.detach()
        for layer, module in layers.items()
        for name, value in module.named_parameters()
    }
    norm = {"bn.weight": torch.ones(hidden), "bn.bias": torch.zeros(hidden)}
    return Weights(params | norm, {"bn.mean": torch.zeros(hidden), "bn.var": torch.ones(hidden)})


def diversity_loss(noise: Tensor, features: Tensor) -> Tensor:
    """[], in (0, 1]: small where unlike noise makes unlike features, 1 where all features are the same."""
    apart = (noise[:, None] - noise).square().mean(2)
    return (-apart * (features[:, None] - features).abs().mean(2)).mean().exp()


def label_weights(counts: Tensor) -> Tensor:
    """[clients, classes] float32: each client's share in each class, 0 in a class that nobody holds."""
    held = counts.clamp(min=0).double()
    return (held / held.sum(0).clamp(min=1)).float()


def teacher_loss(outputs: Tensor, y: Tensor, shares: Tensor) -> Tensor:
    """[]: the cross entropy of the clients' outputs [clients, n, classes], each by its share in the class."""
    each = F.cross_entropy(outputs.flatten(0, 1), y.repeat(len(outputs)), reduction="none")
    return (shares[:, y] * each.view(len(outputs), -1)).sum(0).mean()


class Adam(NamedTuple):
    """What Adam remembers."""

    first: Mapping[str, Tensor]
    second: Mapping[str, Tensor]
    steps: int

    @classmethod
    def fresh(cls, params: Mapping[str, Tensor]) -> Adam:
        """Before the first step."""
        return cls(zeros_like(params), zeros_like(params), 0)


def adam_step(
    memory: Adam, params: Mapping[str, Tensor], gradients: Mapping[str, Tensor], lr: float, decay: float
) -> tuple[Adam, dict[str, Tensor]]:
    """One step with the usual constants; `decay` times the parameters is added to the gradients."""
    steps = memory.steps + 1
    first, second, moved = {}, {}, {}
    for name, value in params.items():
        gradient = gradients[name] + decay * value
        first[name] = 0.9 * memory.first[name] + 0.1 * gradient
        second[name] = 0.999 * memory.second[name] + 0.001 * gradient.square()
        scale = (second[name] / (1 - 0.999**steps)).sqrt() + 1e-8
        moved[name] = value - lr / (1 - 0.9**steps) * first[name] / scale
    return Adam(first, second, steps), moved


def faded(weight: float, decay: float, round: int) -> float:
    """The weight in a round, counted from 0; never below 1e-4, unless it was so from the start."""
    return max(min(weight, FLOOR), weight * math.pow(decay, round))


FLOOR = 1e-4
