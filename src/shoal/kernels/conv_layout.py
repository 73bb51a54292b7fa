"""The memory layout of convolutions.

Activations are stored channels last, each sample with the border of zeros that the next convolution pads it
with. So the part of an image line that a kernel sees is one contiguous run of numbers. Parameters are stored
as [out, line, run], with every run padded to whole vectors; gradients, momentum, initial parameters and shift
have the same layout.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from shoal.kernels.jit import Flag, Index, apart, bare, inner
from shoal.kernels.layout import ROUNDED, Destination, clear, leave, zeros
from shoal.kernels.plan import ConvLayer, ConvPlan

RUN = 16  # runs of parameters are padded to multiples of this
WIDE = 8  # output channels of convolutions are padded to multiples of this
SORTED = 8  # output positions whose outputs are listed together for the gradients of the input
_CACHED = 12000  # input size, in numbers, at which the part that one tile needs is in the nearest cache
FEW = 6  # most output channels of a first layer whose vectors lie along a line; more channels fill vectors
ALONG = 8  # positions of such a vector, or half its positions
GROUP = 48  # output positions that are computed before they are pooled: whole windows and whole tiles
_ZERO = np.float32(0)


class ConvShape(NamedTuple):
    """The numbers of one convolution."""

    inputs: Index  # channels
    across: Index  # width of the input, without its border
    outputs: Index  # channels
    wide: Index  # output channels, padded
    lines: Index  # height of a kernel
    run: Index  # its width times the input channels
    padded: Index  # run, padded
    line: Index  # distance between two lines of the input
    area: Index  # output positions, after the pool
    window: Index  # positions that each of them is the maximum of: 4 with a pool, otherwise 1
    everywhere: Index  # positions of the convolution, including those that the pool leaves out
    size: Index  # of a sample of the input, with its border and room for vectors that end after it
    places: Index  # where its part of `ConvNet.places` starts
    homes: Index  # where its part of `ConvNet.homes` starts
    before: Index  # the total size of the previous layers' inputs
    which: Index  # the total size of the previous layers' padded outputs
    weights: Index  # where they start in the padded parameters
    biases: Index
    kernels: Index  # where the weights start in `ConvWork.kernels`
    strips: Index  # windows of a line if vectors lie along it, otherwise 0
    plane: Index  # distance between two channels of the image, if vectors lie along its lines
    sigmoid: Index  # 1 if its activation is a sigmoid, 0 for ReLU


class ConvNet(NamedTuple):
    """All convolutions, as kernels take them."""

    numbers: np.ndarray  # [layers, fields of ConvShape]
    places: np.ndarray  # for every position, where its kernel starts in a sample; windows are contiguous
    homes: np.ndarray  # where each output goes in a sample of the next layer; the image's pixels come first
    order: np.ndarray  # where each of the model's parameters lies in the padded layout


@lru_cache(maxsize=16)
def tables(plan: ConvPlan) -> ConvNet:
    """The tables of a plan."""
    numbers = np.zeros((len(plan.convs), len(ConvShape._fields)), np.int64)
    none = np.empty(0, np.int64)
    places, homes, order = [none], [_homes(layer.shape, layer) for layer in plan.convs[:1]], [none]
    inputs_at = which_at = params_at = kernels_at = 0
    for i, layer in enumerate(plan.convs):
        ins, outs, lines, run = (
            layer.shape[0],
            layer.channels,
            layer.kernel[0],
            layer.kernel[1] * layer.shape[0],
        )
        wide, padded, line = _up(outs, WIDE), _up(run, RUN), (layer.shape[2] + 2 * layer.padding[1]) * ins
        area, everywhere = layer.output[1] * layer.output[2], layer.sides[0] * layer.sides[1]
        size = _up((layer.shape[1] + 2 * layer.padding[0]) * line + RUN, RUN)
        bias_at = params_at + outs * lines * padded
        numbers[i] = ConvShape(
            ins, layer.shape[2], outs, wide, lines, run, padded, line, area, 4 if layer.pool else 1,
            everywhere, size, sum(map(len, places)), sum(map(len, homes)), inputs_at, which_at, params_at,
            bias_at, kernels_at, layer.output[2] if i == 0 and _has_strips(layer) else 0, size // ins,
            layer.sigmoid,
        )  # fmt: skip
        places.append(_places(layer, line))
        homes.append(_homes(layer.output, plan.convs[i + 1] if i + 1 < len(plan.convs) else None))
        order += [params_at + _order(layer, padded), bias_at + np.arange(outs)]
        inputs_at, which_at = inputs_at + size, which_at + area * wide
        params_at, kernels_at = bias_at + _up(outs, RUN), kernels_at + _up(lines * run * wide, RUN)
    return ConvNet(numbers, *(np.concatenate([none, *parts]) for parts in (places, homes, order)))


def _has_strips(layer: ConvLayer) -> bool:
    """Whether a layer has few outputs, and lines of windows that strips of adjacent positions fit into."""
    return layer.pool and layer.stride == (1, 1) and layer.channels <= FEW and 2 * layer.output[2] >= ALONG


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


def _places(layer: ConvLayer, line: int) -> np.ndarray:
    """The offsets of a kernel in a sample: windows are contiguous, and positions in no window come last.

    Padding follows, so that tiles may continue past the last offset.
    """
    (high, wide), (down, right) = layer.sides, layer.stride
    grid = np.arange(high)[:, None] * down * line + np.arange(wide) * right * layer.shape[0]
    if layer.pool:
        tall, broad = high // 2, wide // 2
        windows = grid[: 2 * tall, : 2 * broad].reshape(tall, 2, broad, 2).transpose(0, 2, 1, 3)
        parts = windows, grid[: 2 * tall, 2 * broad :], grid[2 * tall :]
        grid = np.concatenate([part.reshape(-1) for part in parts])
    return np.concatenate([grid.reshape(-1), np.zeros(GROUP, np.int64)])


def _homes(shape: tuple[int, int, int], layer: ConvLayer | None) -> np.ndarray:
    """Where the pixels of an image lie in a sample of the layer that reads it; None: no border."""
    channels, high, wide = shape
    above, left = (0, 0) if layer is None else layer.padding
    pixels = (np.arange(high)[:, None] + above) * (wide + 2 * left) + np.arange(wide) + left
    return pixels.reshape(-1) * channels


def _order(layer: ConvLayer, padded: int) -> np.ndarray:
    """Where the weights [out, in, line, column] lie in [out, line, column, in], with padded runs."""
    lines, columns = layer.kernel
    out, channel, line, column = np.ogrid[: layer.channels, : layer.shape[0], :lines, :columns]
    places: np.ndarray = (out * lines + line) * padded + column * layer.shape[0] + channel
    return places.reshape(-1)


@bare
def shape_of(conv: ConvNet, layer: Index) -> ConvShape:
    """The numbers of a layer."""
    n = conv.numbers[layer]
    return ConvShape(
        n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], n[12], n[13], n[14], n[15],
        n[16], n[17], n[18], n[19], n[20], n[21],
    )  # fmt: skip


class Lists(NamedTuple):
    """Lists for `make_gather`; all are int64 except the factors."""

    places: np.ndarray
    factors: np.ndarray
    starts: np.ndarray  # where each list starts in these
    lengths: np.ndarray
    targets: np.ndarray  # where its sums go


@bare
def positions_at_once(s: ConvShape) -> Index:
    """How many output positions are listed together for the weights: what they read stays in the cache."""
    return min(s.area, max(16, s.area * _CACHED // s.size))


class ConvWork(NamedTuple):
    """The arrays used in training. Each has the layout of the parameters, of a mini-batch, or of a sample."""

    params: np.ndarray
    gradient: np.ndarray
    speed: np.ndarray  # momentum; empty without it
    origin: np.ndarray  # the initial parameters; empty if nothing needs them
    shift: np.ndarray  # added to every gradient; empty without it
    kernels: np.ndarray  # another copy of the parameters, as [line, run, out]
    image: np.ndarray  # a sample with its border, channel by channel; empty unless the first layer has strips
    inputs: np.ndarray  # activations of the mini-batch: of each layer, all samples
    which: np.ndarray  # int32: the position of each maximum in its window
    strange: np.ndarray  # [layers, samples] bool: whether an input is not finite
    slopes: np.ndarray  # the gradients of the activations of one sample
    passing: np.ndarray  # those of a layer's output that pass through its activation, [area, wide]
    sums: np.ndarray  # of a group of positions
    outputs: np.ndarray  # of the last convolution, for one sample
    top: np.ndarray  # their gradients
    seen: np.ndarray  # the sum over positions of each output channel
    noise: np.ndarray  # for one sample and layer
    lists: Lists
    flat: np.ndarray  # [4, ROUNDED] parameters, gradients, momentum and shift in the order of the model


@inner
def make_conv_work(
    conv: ConvNet, batch: Index, speed: Flag, origin: Flag, shift: Flag, widest: Index
) -> ConvWork:
    """Zeros of the right sizes. `widest` is the size of the widest dense layer."""
    apart()
    layers, none, one = len(conv.numbers), np.int64(0), np.int64(1)
    params: Index = none
    kernels: Index = none
    inputs: Index = none
    which: Index = none
    most: Index = one
    entries: Index = none
    several: Index = none
    image: Index = none
    group: Index = GROUP
    result = widest
    for layer in range(layers):
        s = shape_of(conv, layer)
        params = s.biases + (s.outputs + RUN - 1) // RUN * RUN
        kernels = s.kernels + s.lines * s.run * s.wide
        inputs, which = s.before + s.size, s.which + s.area * s.wide
        most, result = max(most, s.wide), max(result, s.area * s.wide)
        entries = max(entries, s.everywhere, positions_at_once(s) * s.outputs, SORTED * s.window * s.outputs)
        several = max(several, s.outputs, SORTED * s.window)
        image, group = max(image, s.inputs * s.plane if s.strips else none), max(group, s.strips * s.window)
    return ConvWork(
        zeros(params), zeros(params), zeros(params if speed else none), zeros(params if origin else none),
        zeros(params if shift else none), zeros(kernels), zeros(image), zeros(batch * inputs + RUN),
        np.zeros(batch * which, np.int32), np.zeros((layers, batch), np.bool_), zeros(inputs + RUN),
        zeros(result), zeros(group * most), zeros(result + RUN), zeros(result + RUN), zeros(most),
        zeros(result + 2 * RUN),
        Lists(
            np.zeros(entries, np.int64), zeros(entries), np.zeros(several, np.int64),
            np.zeros(several, np.int64), np.zeros(several, np.int64),
        ),
        np.zeros((4, ROUNDED), np.float32),
    )  # fmt: skip


@bare
def pack_conv(order: np.ndarray, flat: np.ndarray, params: np.ndarray) -> None:
    """Copy the convolutions' parameters into the padded layout; `flat` may continue after them."""
    apart()
    clear(params, np.int64(0), params.size)
    for i in range(order.size):
        params[order[i]] = flat[i]


@bare
def pack_conv_difference(order: np.ndarray, flat: np.ndarray, less: np.ndarray, params: np.ndarray) -> Flag:
    """Copy flat - less into the padded layout, whose padding is 0: see `pack_difference`."""
    apart()
    found: Flag = False
    for i in range(order.size):
        value = flat[i] - less[i] if less.size else flat[i]
        params[order[i]] = value
        found |= value != _ZERO
    return found


@bare
def unpack_conv(
    order: np.ndarray, params: np.ndarray, shift: np.ndarray, origin: np.ndarray, to: Destination,
    space: np.ndarray,
) -> Flag:  # fmt: skip
    """The inverse of `pack_conv`; otherwise as `unpack`. `space` is `ConvWork.flat`."""
    apart()
    sound: Flag = True
    for first in range(0, order.size, ROUNDED):
        last = min(first + ROUNDED, order.size)
        row, more = space[0], space[3]
        for i in range(last - first):
            row[i] = params[order[first + i]]
            more[i] = shift[order[first + i]] if shift.size else _ZERO
        sound &= leave(row, more, np.int64(0), origin, first, last - first, to)
    return sound


@bare
def lay_kernels(conv: ConvNet, params: np.ndarray, kernels: np.ndarray) -> None:
    """Copy the parameters into the layout that the forward pass reads."""
    apart()
    for layer in range(len(conv.numbers)):
        s = shape_of(conv, layer)
        for out in range(s.outputs):
            for line in range(s.lines):
                at = s.weights + (out * s.lines + line) * s.padded
                row, place = params[at : at + s.run], s.kernels + line * s.run * s.wide + out
                for k in range(s.run):
                    kernels[place + k * s.wide] = row[k]
