"""A feature generator: maps noise and a class to inputs of a model's last layer.

It has one hidden layer with BatchNorm and ReLU, then a linear layer. Its weights are always an argument.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from shoal.core.flat import flat, in_one_vector
from shoal.core.key import Key
from shoal.core.tree import zeros_like
from shoal.core.types import Weights
from shoal.terms.generated import one_hot


def new_generator(noise: int, classes: int, hidden: int, width: int, key: Key) -> Weights:
    """Initial weights, drawn with the key from the distributions of torch's layers."""
    with key.seeded():
        layers = {"fc1": nn.Linear(noise + classes, hidden), "fc": nn.Linear(hidden, width)}
    params = {
        f"{layer}.{name}": value.detach()
        for layer, module in layers.items()
        for name, value in module.named_parameters()
    }
    norm = {"bn.weight": torch.ones(hidden), "bn.bias": torch.zeros(hidden)}
    return Weights(flat(params | norm), {"bn.mean": torch.zeros(hidden), "bn.var": torch.ones(hidden)})


def label_weights(counts: Tensor) -> Tensor:
    """[clients, classes] float32: each client's share of the samples of each class; 0 if there are none."""
    held = counts.clamp(min=0).double()
    return (held / held.sum(0).clamp(min=1)).float()


class Adam(NamedTuple):
    """The state of Adam."""

    first: Mapping[str, Tensor]
    second: Mapping[str, Tensor]
    steps: int

    @classmethod
    def fresh(cls, params: Mapping[str, Tensor]) -> Adam:
        """The state before the first step."""
        return cls(zeros_like(params), zeros_like(params), 0)


def taught(
    generator: Weights,
    adam: Adam,
    noise: Tensor,
    y: Tensor,
    heads: tuple[Tensor, Tensor],
    shares: Tensor,
    *,
    eta: float,
    lr: float,
    decay: float,
) -> tuple[Weights, Adam, Tensor]:
    """Train the generator. Returns its weights, Adam's state, and [steps, 2]: both losses before each step.

    noise [steps, n, numbers], y [steps, n]; heads are the clients' last layers, [clients, classes, width]
    and [clients, classes].
    """
    from shoal.kernels import generator as kernels  # few runs need it

    params, *moments = (in_one_vector(values) for values in (generator.params, adam.first, adam.second))
    vectors = [values.vector.cpu().clone() for values in (params, *moments)]
    running = [generator.buffers[name].cpu().clone() for name in ("bn.mean", "bn.var")]
    inputs = torch.cat([noise, one_hot(y, shares.shape[1])], 2).cpu()
    weights, biases = (value.cpu().contiguous() for value in heads)
    losses = kernels.train(
        vectors[0].numpy(),
        vectors[1].numpy(),
        vectors[2].numpy(),
        adam.steps,
        running[0].numpy(),
        running[1].numpy(),
        inputs.numpy(),
        noise.shape[2],
        y.cpu().numpy(),
        weights.flatten(0, 1).numpy(),
        biases.flatten().numpy(),
        shares.cpu().numpy(),
        eta,
        lr,
        decay,
    )
    device = params.vector.device
    found, first, second = (params.layout.tree(vector.to(device)) for vector in vectors)
    mean, var = (value.to(device) for value in running)
    memory = Adam(first, second, adam.steps + len(losses))
    return Weights(found, {"bn.mean": mean, "bn.var": var}), memory, torch.from_numpy(losses)


def faded(weight: float, decay: float, round: int) -> float:
    """The weight in a round, counted from 0; at least 1e-4, unless it starts below that."""
    return max(min(weight, FLOOR), weight * math.pow(decay, round))


FLOOR = 1e-4
