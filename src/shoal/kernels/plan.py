"""Which models the compiled kernels can train: they are recognised by their layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import nn

CROSS_ENTROPY, ONE_VERSUS_ALL, SQUARED_ERROR = 0, 1, 2

LOSS_CODES = {
    "cross_entropy": CROSS_ENTROPY,
    "one_versus_all": ONE_VERSUS_ALL,
    "squared_error": SQUARED_ERROR,
}


class DensePlan(NamedTuple):
    """A multilayer perceptron: linear layers with biases, and ReLU between them."""

    sizes: tuple[int, ...]  # of the input, of each layer's output
    loss: int  # one of LOSS_CODES

    @property
    def params(self) -> int:
        """The number of parameters, stored as W1 [out, in], b1, W2, b2, ..."""
        return sum(out * (into + 1) for into, out in zip(self.sizes, self.sizes[1:]))


def plan_of(module: nn.Module, shape: Sequence[int], loss: str) -> DensePlan | None:
    """The plan that computes the same as `module` for samples of this shape; None if there is none."""
    layers = list(_layers(module))
    if layers and type(layers[0]) is nn.Flatten and (layers[0].start_dim, layers[0].end_dim) == (1, -1):
        del layers[0]
    elif len(shape) != 1:
        return None
    linears = [layer for layer in layers[::2] if type(layer) is nn.Linear]
    between = [layer for layer in layers[1::2] if type(layer) is nn.ReLU]
    if len(linears) + len(between) < len(layers) or len(linears) != len(between) + 1:
        return None
    sizes = (math.prod(shape), *(layer.out_features for layer in linears))
    fits = all(layer.in_features == size for layer, size in zip(linears, sizes)) and min(sizes) > 0
    if not fits or loss not in LOSS_CODES or not _usual(module, len(linears)):
        return None
    return DensePlan(sizes, LOSS_CODES[loss])


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of nested `nn.Sequential`s, in order."""
    if type(module) is nn.Sequential:
        for child in module:
            yield from _layers(child)
    elif type(module) is not nn.Identity:
        yield module


def _usual(module: nn.Module, linears: int) -> bool:
    """Whether every linear layer has its own trainable weight and bias, and there are no hooks."""
    values = list(module.parameters())  # each once, even if layers share it
    return (
        len(values) == 2 * linears
        and all(value.dtype is torch.float32 and value.requires_grad for value in values)
        and not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    )
