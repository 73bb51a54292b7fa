"""A generator of features: from noise and a class to what enters a model's last layer for such a sample.

One hidden layer with BatchNorm and ReLU, then a linear one. As everywhere, its weights are an argument.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shoal.core.key import Key
from shoal.core.term import Step, Term
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


def generate(
    generator: Weights, noise: Tensor, y: Tensor, *, train: bool = False
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Features [n, width] for the classes `y`, and the buffers after the pass. Arguments stay as they are."""
    params = generator.params
    classes = params["fc1.weight"].shape[1] - noise.shape[1]
    labels = (y[:, None] == torch.arange(classes, device=y.device)).to(noise.dtype)
    hidden = F.linear(torch.cat([noise, labels], 1), params["fc1.weight"], params["fc1.bias"])
    buffers = {name: value.clone() if train else value for name, value in generator.buffers.items()}
    normal = F.batch_norm(
        hidden, buffers["bn.mean"], buffers["bn.var"], params["bn.weight"], params["bn.bias"], training=train
    )
    return F.linear(normal.relu(), params["fc.weight"], params["fc.bias"]), buffers


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


@dataclass(frozen=True)
class Generated(Term):
    """`g_a CE(h(G(y')), y') + g_b KL(h(G(y)) || h(x))`: a client's head learns from generated features too.

    y' are drawn among the classes that the generator has learned, y are those of the batch; samples of a
    class that it has not learned do not count in the second part, whose target is held fixed.
    """

    generator: Weights
    learned: Tensor  # [classes] bool
    g_a: float
    g_b: float
    draws: int  # of y', a step
    noise: int  # numbers that the generator makes a feature from

    @property
    def active(self) -> bool:
        """See `Term`."""
        return (self.g_a != 0 or self.g_b != 0) and bool(self.learned.any())

    def loss(self, step: Step) -> Tensor:
        """See the class."""
        classes = self.learned.nonzero()[:, 0]
        drawn = step.key.fold("classes").numpy().integers(len(classes), size=self.draws)
        y = torch.cat([step.y, classes[torch.from_numpy(drawn)]])
        noise = step.key.fold("features").uniform((len(y), self.noise)).to(y.device)
        with torch.no_grad():
            features, _ = generate(self.generator, noise, y)
        head = {name: step.weights.params[name].float() for name in step.task.head_names}
        outputs = step.task.head(head, features)
        own, more = outputs[: len(step.y)].detach(), outputs[len(step.y) :]
        gap = F.kl_div(step.outputs.log_softmax(1), own.log_softmax(1), reduction="none", log_target=True)
        agreed = step.mean(gap.sum(1) * self.learned[step.y])
        return self.g_a * F.cross_entropy(more, y[len(step.y) :]) + self.g_b * agreed


def faded(weight: float, decay: float, round: int) -> float:
    """The weight in a round, counted from 0; never below 1e-4, unless it was so from the start."""
    return max(min(weight, FLOOR), weight * math.pow(decay, round))


FLOOR = 1e-4
