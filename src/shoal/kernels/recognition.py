"""Recognises, by their layers, the models that the compiled kernels can train."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import nn

from shoal.kernels.plan import LOSS_CODES, ConvLayer, ConvPlan, DensePlan, Drop, Plan


def plan_of(
    module: nn.Module, shape: Sequence[int], loss: str, drops: Mapping[str, float] | None = None
) -> Plan | None:
    """The plan that computes the same as `module` for samples of this shape; None if there is none.

    `drops` maps the names of the dropout layers to their rates.
    """
    layers = [layer for layer in _layers(module, "", drops or {}) if type(layer) is not nn.Identity]
    try:
        plan = _Reader(layers, tuple(shape)).plan(LOSS_CODES[loss]) if loss in LOSS_CODES else None
    except _NoPlanError:
        return None
    return plan if _usual(module, sum(type(layer) in (nn.Linear, nn.Conv2d) for layer in layers)) else None


Layer = nn.Module | Drop
NO_DROP = Drop("", 0.0)


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
    """Reads the layers from the first to the last."""

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
            if convs[-1].sigmoid and self._drops[-1].noise:  # dropped outputs lose the sigmoid's slope
                raise _NoPlanError
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
        squashed = bool(self._read((nn.Sigmoid,)))
        pool = False if squashed else self._activation((nn.ReLU, nn.MaxPool2d, Drop))
        if squashed:
            self._drops.append(NO_DROP)
        (high, wide), (down, right) = layer.kernel_size, layer.stride
        made = ConvLayer(
            self._shape, layer.out_channels, (high, wide), (down, right), padding, pool, squashed
        )
        if min(made.sides) < 1 or min(made.output) < 1:
            raise _NoPlanError
        return made

    def _linear(self, inputs: int) -> int:
        layer = self._layers.pop(0) if self._layers else None
        if type(layer) is not nn.Linear or layer.in_features != inputs or min(inputs, layer.out_features) < 1:
            raise _NoPlanError
        return layer.out_features

    def _activation(self, kinds: tuple[type, ...]) -> bool:
        """Read what follows a hidden layer, in any equivalent order; returns whether it pools."""
        found = self._read(kinds)
        order = list(found)
        if nn.ReLU not in found or (nn.MaxPool2d in found and Drop in order[: order.index(nn.MaxPool2d)]):
            raise _NoPlanError
        self._drops.append(_drop(found))
        return nn.MaxPool2d in found

    def _read(self, kinds: tuple[type, ...]) -> dict[type, Layer]:
        """Read the next layers, as long as they are of these kinds and no kind occurs twice."""
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
    return drop if isinstance(drop, Drop) else NO_DROP


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
