"""Which models the compiled kernels can train: they are recognised by their layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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
    held: int = 0  # how many of the last layers are not trained
    fusion: int = 0  # length of lambda, if features are fused before the last layer: see `activations`

    @property
    def params(self) -> int:
        """The number of parameters, stored as lambda if there is one, W1 [out, in], b1, W2, b2, ..."""
        return self.fusion + sum(out * (into + 1) for into, out in zip(self.sizes, self.sizes[1:]))

    @property
    def inputs(self) -> int:
        """How many numbers a sample has."""
        return self.sizes[0]


class ConvLayer(NamedTuple):
    """A convolution with bias, ReLU, and perhaps a maximum over 2 x 2 positions."""

    shape: tuple[int, int, int]  # of the input: channels, height, width
    channels: int  # of the output
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    pool: bool

    @property
    def params(self) -> int:
        """The number of parameters: W [out, in, height, width], b."""
        return self.channels * (self.shape[0] * math.prod(self.kernel) + 1)

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of the output before the pool."""
        high, wide = (
            (side + 2 * pad - kernel) // step + 1
            for side, pad, kernel, step in zip(self.shape[1:], self.padding, self.kernel, self.stride)
        )
        return high, wide

    @property
    def output(self) -> tuple[int, int, int]:
        """The shape of the output."""
        high, wide = self.sides
        return (self.channels, high // 2, wide // 2) if self.pool else (self.channels, high, wide)


class Drop(NamedTuple):
    """Dropout after a hidden layer."""

    noise: str  # the name of its random numbers; "" without dropout
    rate: float  # the share that is dropped


class ConvPlan(NamedTuple):
    """Convolutions, then a multilayer perceptron on their output; dropout after any hidden layer."""

    convs: tuple[ConvLayer, ...]
    dense: DensePlan
    drops: tuple[Drop, ...]  # one for each convolution and each linear layer but the last

    @property
    def params(self) -> int:
        """The number of parameters, layer by layer."""
        return sum(layer.params for layer in self.convs) + self.dense.params

    @property
    def loss(self) -> int:
        """One of LOSS_CODES."""
        return self.dense.loss

    @property
    def inputs(self) -> int:
        """How many numbers a sample has."""
        return math.prod(self.convs[0].shape) if self.convs else self.dense.sizes[0]


Plan = DensePlan | ConvPlan


def without_head(plan: Plan) -> Plan:
    """The same network, of which the last layer is not trained."""
    dense = dense_part(plan)._replace(held=1)
    return plan._replace(dense=dense) if isinstance(plan, ConvPlan) else dense


def with_fusion(plan: Plan, length: int) -> Plan | None:
    """The same network with fused features before its last layer; None if no layer comes before it."""
    dense = dense_part(plan)._replace(fusion=length)
    if len(dense.sizes) < 3 and not (isinstance(plan, ConvPlan) and plan.convs):
        return None
    return plan._replace(dense=dense) if isinstance(plan, ConvPlan) else dense


def dense_part(plan: Plan) -> DensePlan:
    """The layers that end the network."""
    return plan.dense if isinstance(plan, ConvPlan) else plan


def plan_of(
    module: nn.Module, shape: Sequence[int], loss: str, drops: Mapping[str, float] | None = None
) -> Plan | None:
    """The plan that computes the same as `module` for samples of this shape; None if there is none.

    `drops` has the rates of the dropout layers, by name.
    """
    layers = [layer for layer in _layers(module, "", drops or {}) if type(layer) is not nn.Identity]
    try:
        plan = _Reader(layers, tuple(shape)).plan(LOSS_CODES[loss]) if loss in LOSS_CODES else None
    except _NoPlanError:
        return None
    return plan if _usual(module, sum(type(layer) in (nn.Linear, nn.Conv2d) for layer in layers)) else None


Layer = nn.Module | Drop


def _layers(module: nn.Module, name: str, drops: Mapping[str, float]) -> Iterator[Layer]:
    """The layers of nested `nn.Sequential`s, in order."""
    if type(module) is nn.Sequential:
        for child, part in module.named_children():
            yield from _layers(part, f"{name}.{child}" if name else child, drops)
    else:
        yield Drop(f"{name}.noise", drops[name]) if name in drops else module


def _usual(module: nn.Module, layers: int) -> bool:
    """Whether every layer has its own trainable weight and bias, and there are no hooks."""
    values = list(module.parameters())  # each once, even if layers share it
    return (
        len(values) == 2 * layers
        and all(value.dtype is torch.float32 and value.requires_grad for value in values)
        and not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    )


class _NoPlanError(Exception):
    """The layers are not of a kind that the kernels know."""


class _Reader:
    """Goes through the layers from the first to the last."""

    def __init__(self, layers: Sequence[Layer], shape: tuple[int, ...]) -> None:
        self._layers, self._shape = list(layers), shape
        self._drops: list[Drop] = []

    def plan(self, loss: int) -> Plan:
        """The plan of all layers."""
        convs = []
        while self._layers and isinstance(layer := self._layers[0], nn.Conv2d) and type(layer) is nn.Conv2d:
            del self._layers[0]
            convs.append(self._conv(layer))
            self._shape = convs[-1].output
        if self._layers and _flattens(self._layers[0]):
            del self._layers[0]
        elif len(self._shape) != 1:
            raise _NoPlanError
        if convs and not self._drops[-1].noise:  # dropout just after flattening
            self._drops[-1] = _drop(self._read((Drop,)))
        sizes = [math.prod(self._shape)]
        while True:
            sizes.append(self._linear(sizes[-1]))
            if not self._layers:
                break
            self._activation((nn.ReLU, Drop))
        dense = DensePlan(tuple(sizes), loss)
        if convs or any(drop.noise for drop in self._drops):
            return ConvPlan(tuple(convs), dense, tuple(self._drops))
        return dense

    def _conv(self, layer: nn.Conv2d) -> ConvLayer:
        padding = _padding(layer)
        plain = layer.groups == 1 and layer.padding_mode == "zeros" and set(layer.dilation) == {1}
        if not plain or len(self._shape) != 3 or self._shape[0] != layer.in_channels or padding is None:
            raise _NoPlanError
        pool = self._activation((nn.ReLU, nn.MaxPool2d, Drop))
        (high, wide), (down, right) = layer.kernel_size, layer.stride
        made = ConvLayer(self._shape, layer.out_channels, (high, wide), (down, right), padding, pool)
        if min(made.sides) < 1 or min(made.output) < 1:
            raise _NoPlanError
        return made

    def _linear(self, inputs: int) -> int:
        layer = self._layers.pop(0) if self._layers else None
        if type(layer) is not nn.Linear or layer.in_features != inputs or min(inputs, layer.out_features) < 1:
            raise _NoPlanError
        return layer.out_features

    def _activation(self, kinds: tuple[type, ...]) -> bool:
        """Read what follows a hidden layer, in any order that gives the same; whether it pools."""
        found = self._read(kinds)
        order = list(found)
        if nn.ReLU not in found or (nn.MaxPool2d in found and Drop in order[: order.index(nn.MaxPool2d)]):
            raise _NoPlanError
        self._drops.append(_drop(found))
        return nn.MaxPool2d in found

    def _read(self, kinds: tuple[type, ...]) -> dict[type, Layer]:
        """The next layers as far as they are of these kinds, and of no kind twice."""
        found: dict[type, Layer] = {}
        while self._layers and type(self._layers[0]) in kinds and type(self._layers[0]) not in found:
            layer = self._layers.pop(0)
            if type(layer) is nn.MaxPool2d and not _halves(layer):
                raise _NoPlanError
            found[type(layer)] = layer
        return found


def _drop(found: Mapping[type, Layer]) -> Drop:
    """The dropout among these layers, or none."""
    drop = found.get(Drop)
    return drop if isinstance(drop, Drop) else Drop("", 0.0)


def _flattens(layer: Layer) -> bool:
    return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)


def _halves(layer: nn.MaxPool2d) -> bool:
    """Whether a pool takes the maximum of every 2 x 2 positions."""
    sizes = [pair if isinstance(pair, tuple) else (pair, pair) for pair in (layer.kernel_size, layer.stride)]
    rest = (layer.padding, layer.dilation, layer.ceil_mode, layer.return_indices)
    return sizes == [(2, 2), (2, 2)] and rest in ((0, 1, False, False), ((0, 0), (1, 1), False, False))


def _padding(layer: nn.Conv2d) -> tuple[int, int] | None:
    """Rows and columns of zeros on each side; None if the sides differ."""
    if not isinstance(layer.padding, str):
        high, wide = layer.padding
        return int(high), int(wide)
    high, wide = layer.kernel_size
    if layer.padding == "valid":
        return 0, 0
    return (high // 2, wide // 2) if high % 2 and wide % 2 else None
