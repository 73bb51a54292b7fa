"""Generated features, the term of FedGen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from shoal.core.key import Key
from shoal.core.term import Step, Term
from shoal.core.types import Weights


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

    def drawn(self, key: Key, y: Tensor) -> tuple[Tensor, Tensor]:
        """The classes y of a step's samples and those drawn besides, and noise for a feature of each."""
        classes = self.learned.nonzero()[:, 0]
        drawn = key.fold("classes").numpy().integers(len(classes), size=self.draws)
        y = torch.cat([y, classes[torch.from_numpy(drawn)]])
        return y, key.fold("features").uniform((len(y), self.noise)).to(y.device)

    def loss(self, step: Step) -> Tensor:
        """See the class."""
        y, noise = self.drawn(step.key, step.y)
        with torch.no_grad():
            features, _ = generate(self.generator, noise, y)
        head = {name: step.weights.params[name].float() for name in step.task.head_names}
        outputs = step.task.head(head, features)
        own, more = outputs[: len(step.y)].detach(), outputs[len(step.y) :]
        gap = F.kl_div(step.outputs.log_softmax(1), own.log_softmax(1), reduction="none", log_target=True)
        agreed = step.mean(gap.sum(1) * self.learned[step.y])
        return self.g_a * F.cross_entropy(more, y[len(step.y) :]) + self.g_b * agreed
