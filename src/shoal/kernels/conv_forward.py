"""The forward pass of convolutions, sample by sample: what is computed is used while it is in the cache."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.kernels.conv_layout import GROUP, ConvNet, ConvWork
from shoal.kernels.conv_tiles import make_pool, make_window
from shoal.kernels.jit import Flag, Index, Real, Word, inner
from shoal.kernels.layout import Net, Workspace, clear, copy
from shoal.kernels.passes import forward_layer
from shoal.kernels.philox import FOLD_INT, FOLD_TEXT, coarse, fold_one

_LANES, _HALF = 16, 8  # output channels of a tile
_TALL, _TALLER = 6, 8  # positions of a tile of 16 channels, and of 8: 12 and 8 of AVX2's 16 registers are sums
_window, _window_half = make_window(_TALL, _LANES), make_window(_TALLER, _HALF)
_pool, _pool_one = make_pool(4, _HALF), make_pool(1, _HALF)
_ZERO, _ONE = np.float32(0), np.float32(1)


class Dropping(NamedTuple):
    """The dropout of a step."""

    on: Flag
    first: Word  # the key of the step
    second: Word
    rates: np.ndarray  # [hidden layers] float32
    names: np.ndarray  # [hidden layers] uint64: what is folded into the step's key


@inner
def step_key(words: np.ndarray, step: Index) -> tuple[Word, Word]:
    """The key of a client's step."""
    return fold_one(words[0], words[1], np.uint64(step), FOLD_INT)


@inner
def keep_scale(rate: Real) -> Real:
    """What survives dropout is multiplied by this."""
    return np.float32(1 / (1 - np.float64(rate)))


@inner
def _draw(work: ConvWork, drop: Dropping, layer: Index, size: Index, b: Index) -> np.ndarray:
    """The random numbers of a sample for a layer of this size: a part of those of the whole mini-batch."""
    key = fold_one(drop.first, drop.second, drop.names[layer], FOLD_TEXT)
    begin = b * size
    skip = begin % 16
    coarse(key, begin // 16, work.noise[: (skip + size + 15) // 16 * 16])
    return work.noise[skip : skip + size]


@inner
def conv_forward(
    conv: ConvNet, held: ConvWork, net: Net, work: Workspace, x: np.ndarray, rows: np.ndarray, drop: Dropping
) -> None:
    """Compute the activations of all layers for the samples `rows`."""
    for b in range(rows.size):
        _enter(conv, held, x[rows[b]], work.values, net.strides[0], b)
        for layer in range(conv.run.size):
            _convolve(conv, held, layer, b, drop)
        if conv.run.size:
            _flatten(conv, held, work.values, net.strides[0], b, drop)
    for layer in range(net.weights.size):
        forward_layer(net, work, layer, np.int64(0), rows.size)
        hidden = conv.run.size + layer
        if drop.on and hidden < drop.rates.size and drop.rates[hidden] > _ZERO:
            for b in range(rows.size):
                _thin(net, work, held, layer + 1, hidden, b, drop)


@inner
def _thin(
    net: Net, work: Workspace, held: ConvWork, layer: Index, hidden: Index, b: Index, drop: Dropping
) -> None:
    """Dropout of a sample's outputs of a dense layer."""
    size, at = net.sizes[layer], net.values[layer] + b * net.strides[layer]
    noise, rate, scale = _draw(held, drop, hidden, size, b), drop.rates[hidden], keep_scale(drop.rates[hidden])
    row = work.values[at : at + size]
    for i in range(size):
        row[i] *= scale if noise[i] >= rate else _ZERO


@inner
def _enter(
    conv: ConvNet, held: ConvWork, image: np.ndarray, values: np.ndarray, stride: Index, b: Index
) -> None:
    """Copy a sample [channels, pixels] into the first layer."""
    if conv.run.size == 0:
        copy(values, b * stride, image, np.int64(0), image.size)
        return
    channels, at, pixels = conv.inputs[0], b * conv.size[0], conv.homes_at[0]
    strange = False
    for channel in range(channels):
        plane = image[channel * pixels : (channel + 1) * pixels]
        for i in range(pixels):
            held.inputs[at + conv.homes[i] + channel] = plane[i]
            strange |= not abs(plane[i]) < np.inf
    held.strange[0, b] = strange


@inner
def _convolve(conv: ConvNet, held: ConvWork, layer: Index, b: Index, drop: Dropping) -> None:
    """A convolution with bias, ReLU and pool, for one sample."""
    outs, wide, window, area = conv.outputs[layer], conv.wide[layer], conv.window[layer], conv.area[layer]
    top, batch = layer + 1 == conv.run.size, held.strange.shape[1]
    to = np.int64(0) if top else batch * conv.inputs_at[layer + 1] + b * conv.size[layer + 1]
    target = held.outputs if top else held.inputs
    clear(held.seen, np.int64(0), wide)
    which, homes = batch * conv.which_at[layer] + b * area * wide, conv.homes_at[layer]
    for first in range(0, area * window, GROUP):
        count = min(GROUP, area * window - first)
        _sum_group(conv, held, layer, batch * conv.inputs_at[layer] + b * conv.size[layer], first, count)
        for i in range(count // window):
            p = first // window + i
            for c in range(0, wide, _HALF):
                args = (held.which, which + p * wide + c, held.sums, i * window * wide + c, wide)
                more = (held.params, conv.biases_at[layer] + c, held.seen, c)
                if window == 4:
                    _pool(held.pooled, c, *args, *more)
                else:
                    _pool_one(held.pooled, c, *args, *more)
            copy(target, to + conv.homes[homes + p], held.pooled, np.int64(0), outs)
    if not top:
        if drop.on and drop.rates[layer] > _ZERO:
            _drop_inside(conv, held, layer, to, b, drop)
        strange = False
        for c in range(outs):
            strange |= not abs(held.seen[c]) < np.inf
        held.strange[layer + 1, b] = strange


@inner
def _sum_group(conv: ConvNet, held: ConvWork, layer: Index, at: Index, first: Index, count: Index) -> None:
    """The sums of a convolution at some positions, for all output channels."""
    wide, places = conv.wide[layer], conv.places_at[layer] + first
    rest = (conv.lines[layer], conv.line[layer], conv.run[layer])
    for c in range(0, wide - _HALF, _LANES):
        for i in range(0, count, _TALL):
            into = (held.sums, i * wide + c, wide)
            weights = (held.kernels, conv.kernels_at[layer] + c, wide)
            _window(*into, held.inputs, at, conv.places, places + i, *weights, *rest)
    if wide % _LANES:
        c = wide - _HALF
        for i in range(0, count, _TALLER):
            into = (held.sums, i * wide + c, wide)
            weights = (held.kernels, conv.kernels_at[layer] + c, wide)
            _window_half(*into, held.inputs, at, conv.places, places + i, *weights, *rest)


@inner
def _drop_inside(conv: ConvNet, held: ConvWork, layer: Index, at: Index, b: Index, drop: Dropping) -> None:
    """Dropout of a sample between convolutions. Random numbers lie channel by channel."""
    outs, area, rate = conv.outputs[layer], conv.area[layer], drop.rates[layer]
    noise, scale = _draw(held, drop, layer, outs * area, b), keep_scale(rate)
    for p in range(area):
        place = at + conv.homes[conv.homes_at[layer] + p]
        for c in range(outs):
            held.inputs[place + c] *= scale if noise[c * area + p] >= rate else _ZERO


@inner
def _flatten(
    conv: ConvNet, held: ConvWork, values: np.ndarray, stride: Index, b: Index, drop: Dropping
) -> None:
    """Copy the last convolution's outputs to the first dense layer, channel by channel, with dropout."""
    last = conv.run.size - 1
    outs, area, rate = conv.outputs[last], conv.area[last], drop.rates[last]
    for c in range(outs):
        row = values[b * stride + c * area : b * stride + (c + 1) * area]
        for p in range(area):
            row[p] = held.outputs[p * outs + c]
    if drop.on and rate > _ZERO:
        noise, scale, row = _draw(held, drop, last, outs * area, b), keep_scale(rate), values[b * stride :]
        for i in range(outs * area):
            row[i] *= scale if noise[i] >= rate else _ZERO
