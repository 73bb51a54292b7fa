"""The forward pass of convolutions, sample by sample: results are used while they are in the cache."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.kernels.channel_order import all_finite, turn, weave
from shoal.kernels.conv_layout import ALONG, FEW, GROUP, ConvNet, ConvShape, ConvWork, shape_of
from shoal.kernels.conv_tiles import make_pool, make_strip, make_window
from shoal.kernels.jit import Flag, Index, Real, Word, apart, bare
from shoal.kernels.layout import Net, Workspace, clear, copy
from shoal.kernels.passes import forward_layer
from shoal.kernels.philox_blocks import FOLD_INT, FOLD_TEXT, PER_BLOCK, fold, fractions
from shoal.kernels.vectors import BROAD

_BROADEST, _LANES, _HALF = 32, 16, 8  # output channels of a tile
# positions of a tile of 32 or 16 channels, and of 8: sums take 12 and 8 of AVX2's 16 registers
_TALL, _TALLER = 8 if BROAD else 6, 8
_window_broad, _window = make_window(_TALL, _BROADEST), make_window(_TALL, _LANES)
_window_half = make_window(_TALLER, _HALF)
_strip_broad, _strip = make_strip(2 * ALONG, FEW), make_strip(ALONG, FEW)
_pool, _pool_one = make_pool(4, _HALF), make_pool(1, _HALF)
_ZERO, _ONE = np.float32(0), np.float32(1)


class Dropping(NamedTuple):
    """The dropout of a step."""

    on: Flag
    first: Word  # the key of the step
    second: Word
    rates: np.ndarray  # [hidden layers] float32
    names: np.ndarray  # [hidden layers] uint64: what is folded into the step's key


@bare
def step_key(words: np.ndarray, step: Index) -> tuple[Word, Word]:
    """The key of a client's step."""
    return fold(words[0], words[1], np.uint64(step), FOLD_INT)


@bare
def keep_scale(rate: Real) -> Real:
    """The factor by which dropout multiplies the values it keeps."""
    return np.float32(1 / (1 - np.float64(rate)))


@bare
def _draw(space: np.ndarray, drop: Dropping, layer: Index, size: Index, b: Index) -> Index:
    """Draw a sample's random numbers for a layer of this size, which are a part of the mini-batch's.

    Returns where they start.
    """
    key = fold(drop.first, drop.second, drop.names[layer], FOLD_TEXT)
    skip, none = b * size % PER_BLOCK, np.uint64(0)
    blocks = (skip + size + PER_BLOCK - 1) // PER_BLOCK
    fractions(key, b * size // PER_BLOCK, none, none, space[: blocks * PER_BLOCK])
    return skip


@bare
def conv_forward(
    conv: ConvNet, held: ConvWork, net: Net, work: Workspace, x: np.ndarray, rows: np.ndarray, drop: Dropping
) -> None:
    """Compute the activations of all layers for the samples `rows`."""
    layers = len(conv.numbers)
    for b in range(rows.size):
        if layers:
            _enter(conv, held, x[rows[b]], b)
            for layer in range(layers):
                _convolve(conv, held, layer, b, drop)
            _flatten(conv, held, work.values, b * net.strides[0], b, drop)
        else:
            copy(work.values, b * net.strides[0], x[rows[b]], np.int64(0), net.sizes[0])
    for layer in range(net.weights.size):
        forward_layer(net, work, layer, np.int64(0), rows.size)
        hidden = layers + layer
        if drop.on and hidden < drop.rates.size and drop.rates[hidden] > _ZERO:
            for b in range(rows.size):
                at = net.values[layer + 1] + b * net.strides[layer + 1]
                _thin(work.values[at : at + net.sizes[layer + 1]], held.noise, drop, hidden, b)


@bare
def _thin(row: np.ndarray, space: np.ndarray, drop: Dropping, hidden: Index, b: Index) -> None:
    """Dropout of a sample's activations."""
    apart()
    skip, rate = _draw(space, drop, hidden, row.size, b), drop.rates[hidden]
    noise, scale = space[skip : skip + row.size], keep_scale(rate)
    for i in range(row.size):
        row[i] *= scale if noise[i] >= rate else _ZERO


@bare
def _enter(conv: ConvNet, held: ConvWork, image: np.ndarray, b: Index) -> None:
    """Copy a sample [channels, pixels] into the first layer."""
    apart()
    s = shape_of(conv, np.int64(0))
    pixels, channels = s.homes, s.inputs
    for first in range(0, pixels, s.across):
        home = b * s.size + conv.homes[first]
        weave(held.inputs, home, image, first, pixels, channels, s.across)
        if s.strips:
            for c in range(channels):
                home = c * s.plane + conv.homes[first] // channels
                copy(held.image, home, image, c * pixels + first, s.across)
    held.strange[0, b] = not all_finite(image)


@bare
def _convolve(conv: ConvNet, held: ConvWork, layer: Index, b: Index, drop: Dropping) -> None:
    """A convolution with bias, activation and pool, for one sample."""
    apart()
    s, batch = shape_of(conv, layer), held.strange.shape[1]
    top = layer + 1 == len(conv.numbers)
    target, to = held.outputs, np.int64(0)
    if not top:
        above = shape_of(conv, layer + 1)
        target, to = held.inputs, batch * above.before + b * above.size
    clear(held.seen, np.int64(0), s.wide)
    which = batch * s.which + b * s.area * s.wide
    group = s.strips * s.window if s.strips else GROUP
    for first in range(0, s.area * s.window, group):
        count = min(group, s.area * s.window - first)
        at, p = batch * s.before + b * s.size, first // s.window
        if s.strips:
            _sum_line(s, held.sums, held.image, first // group, held.kernels)
        else:
            _sum_group(s, held.sums, held.inputs, at, conv.places, s.places + first, held.kernels, count)
        args = (held.params, held.seen, target, to, conv.homes, s.homes + p)
        if s.sigmoid:
            _squash_group(s, count, held.sums, *args)
        else:
            _pool_group(s, count // s.window, held.sums, held.which, which + p * s.wide, *args)
    if not top:
        if drop.on and drop.rates[layer] > _ZERO:
            _drop_inside(conv, held, layer, to, b, drop)
        strange = False
        for c in range(s.outputs):
            strange |= not abs(held.seen[c]) < np.inf
        held.strange[layer + 1, b] = strange


@bare
def _sum_group(
    s: ConvShape, sums: np.ndarray, inputs: np.ndarray, at: Index, places: np.ndarray, first: Index,
    kernels: np.ndarray, count: Index,
) -> None:  # fmt: skip
    """The sums of a convolution at some positions, for all output channels."""
    apart()
    broad = s.wide - s.wide % _BROADEST if BROAD else 0  # such tiles need more registers than AVX2 has
    for c in range(0, broad, _BROADEST):
        for i in range(0, count, _TALL):
            into, weights = (sums, i * s.wide + c, s.wide), (kernels, s.kernels + c, s.wide)
            _window_broad(*into, inputs, at, places, first + i, *weights, s.lines, s.line, s.run)
    for c in range(broad, s.wide - _HALF, _LANES):
        for i in range(0, count, _TALL):
            into, weights = (sums, i * s.wide + c, s.wide), (kernels, s.kernels + c, s.wide)
            _window(*into, inputs, at, places, first + i, *weights, s.lines, s.line, s.run)
    if s.wide % _LANES:
        last = s.wide - _HALF
        for i in range(0, count, _TALLER):
            into, weights = (sums, i * s.wide + last, s.wide), (kernels, s.kernels + last, s.wide)
            _window_half(*into, inputs, at, places, first + i, *weights, s.lines, s.line, s.run)


@bare
def _sum_line(s: ConvShape, sums: np.ndarray, image: np.ndarray, y: Index, kernels: np.ndarray) -> None:
    """The sums of a convolution for a line of windows, in strips; the last strip ends where the line does."""
    apart()
    line, wide = s.line // s.inputs, 2 * s.strips
    broad = BROAD and wide >= 2 * ALONG
    step = 2 * ALONG if broad else ALONG
    for x in range(0, wide, step):
        first = min(x, wide - step)
        into, source = (sums, 2 * first * s.wide, s.wide), (image, 2 * y * line + first, s.plane, line)
        rest = (kernels, s.kernels, s.wide, s.inputs, s.lines, s.run // s.inputs)
        if broad:
            _strip_broad(*into, *source, *rest)
        else:
            _strip(*into, *source, *rest)


@bare
def _pool_group(
    s: ConvShape, count: Index, sums: np.ndarray, which: np.ndarray, at: Index, params: np.ndarray,
    seen: np.ndarray, target: np.ndarray, to: Index, homes: np.ndarray, first: Index,
) -> None:  # fmt: skip
    """Apply bias, ReLU and pooling to these sums.

    The last vector may extend past a position's own channels. It is 0 there, and what follows is either a
    border or written later, because the last channels are processed first.
    """
    apart()
    for c in range(s.wide - _HALF, -1, -_HALF):
        into, source = (target, to + c, homes, first, which, at + c), (sums, c, s.wide)
        rest = (params, s.biases + c, seen, c, s.outputs - c, count)
        if s.window == 4:
            _pool(*into, *source, *rest)
        else:
            _pool_one(*into, *source, *rest)


@bare
def _squash_group(
    s: ConvShape, count: Index, sums: np.ndarray, params: np.ndarray, seen: np.ndarray, target: np.ndarray,
    to: Index, homes: np.ndarray, first: Index,
) -> None:  # fmt: skip
    """Apply bias and sigmoid to these sums."""
    apart()
    bias = params[s.biases : s.biases + s.outputs]
    for p in range(count):
        home, row = to + homes[first + p], sums[p * s.wide : p * s.wide + s.outputs]
        out = target[home : home + s.outputs]
        for c in range(s.outputs):
            out[c] = _ONE / (_ONE + np.exp(-(row[c] + bias[c])))
            seen[c] += out[c]


@bare
def _drop_inside(conv: ConvNet, held: ConvWork, layer: Index, at: Index, b: Index, drop: Dropping) -> None:
    """Dropout of a sample between convolutions. Random numbers are ordered channel by channel."""
    s, rate = shape_of(conv, layer), drop.rates[layer]
    skip, scale = _draw(held.noise, drop, layer, s.outputs * s.area, b), keep_scale(rate)
    for p in range(s.area):
        place = at + conv.homes[s.homes + p]
        for c in range(s.outputs):
            held.inputs[place + c] *= scale if held.noise[skip + c * s.area + p] >= rate else _ZERO


@bare
def _flatten(conv: ConvNet, held: ConvWork, values: np.ndarray, at: Index, b: Index, drop: Dropping) -> None:
    """Copy the last convolution's outputs to the first dense layer, channel by channel, with dropout."""
    apart()
    last = len(conv.numbers) - 1
    s = shape_of(conv, last)
    turn(values, at, held.outputs, np.int64(0), s.area, s.outputs)
    if drop.on and drop.rates[last] > _ZERO:
        _thin(values[at : at + s.outputs * s.area], held.noise, drop, last, b)
