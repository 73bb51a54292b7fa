"""The term of FedGen: generated features."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from shoal.core.key import Key
from shoal.core.term import Step, Term
from shoal.core.types import Weights


def generate(generator: Weights, noise: Tensor, y: Tensor) -> Tensor:
    """[n, width]: generated features of the classes `y`, with the running statistics of BatchNorm."""
    params, buffers = generator
    classes = params["fc1.weight"].shape[1] - noise.shape[1]
    hidden = F.linear(torch.cat([noise, one_hot(y, classes)], 1), params["fc1.weight"], params["fc1.bias"])
    scale = params["bn.weight"], params["bn.bias"]
    normal = F.batch_norm(hidden, buffers["bn.mean"], buffers["bn.var"], *scale)
    return F.linear(normal.relu(), params["fc.weight"], params["fc.bias"])


def one_hot(y: Tensor, classes: int) -> Tensor:
    """[..., classes] float32: one-hot vectors."""
    return (y[..., None] == torch.arange(classes, device=y.device)).float()


@dataclass(frozen=True)
class Generated(Term):
    """`g_a CE(h(G(y')), y') + g_b KL(h(G(y)) || h(x))`: trains a client's last layer on generated features.

    y' are drawn from the classes that the generator has learned, y are the labels of the mini-batch.
    Samples of classes that it has not learned do not count in the second part, whose target has no
    gradient.
    """

    generator: Weights
    learned: Tensor  # [classes] bool
    g_a: float
    g_b: float
    draws: int  # of y', per step
    noise: int  # how many random numbers the generator turns into a feature vector

    @property
    def active(self) -> bool:
        """See `Term`."""
        return (self.g_a != 0 or self.g_b != 0) and bool(self.learned.any())

    @property
    def kind(self) -> Hashable:
        """See `Term`. Features are computed client by client, with the generator of each."""
        return Generated, id(self.learned), self.g_a, self.g_b

    def drawn(self, key: Key, y: Tensor) -> tuple[Tensor, Tensor]:
        """The labels y of a step's samples followed by the y' drawn, and generator noise for each of them."""
        classes = self.learned.nonzero()[:, 0]
        y = torch.cat([y, classes[key.fold("classes").integers(len(classes), self.draws)]])
        return y, key.fold("features").uniform((len(y), self.noise)).to(y.device)

    def loss(self, step: Step) -> Tensor:
        """See the class."""
        y, noise = self.drawn(step.key, step.y)
        with torch.no_grad():
            features = generate(self.generator, noise, y)
        head = {name: step.weights.params[name].float() for name in step.task.head_names}
        outputs = step.task.head(head, features)
        own, more = outputs[: len(step.y)].detach(), outputs[len(step.y) :]
        gap = F.kl_div(step.outputs.log_softmax(1), own.log_softmax(1), reduction="none", log_target=True)
        agreed = step.mean(gap.sum(1) * self.learned[step.y])
        return self.g_a * F.cross_entropy(more, y[len(step.y) :]) + self.g_b * agreed
