"""The backward pass of convolutions, sample by sample.

Most gradients of a convolution's outputs are 0: only the maximum of a pooling window has one, and only if
ReLU left it positive. The others are collected in lists, which the tiles go through. Where an input is not
finite, the lists contain all positions: 0 times infinity has to show in the result, as it does in torch.
"""

from __future__ import annotations

import numpy as np

from shoal.kernels.channel_order import turn
from shoal.kernels.conv_forward import Dropping, keep_scale
from shoal.kernels.conv_layout import (
    SORTED,
    ConvNet,
    ConvShape,
    ConvWork,
    Lists,
    positions_at_once,
    shape_of,
)
from shoal.kernels.conv_lists import list_positions, make_pass, make_sort
from shoal.kernels.conv_tiles import make_gather
from shoal.kernels.jit import Flag, Index, Real, apart, bare
from shoal.kernels.layout import Net, Workspace, clear
from shoal.kernels.vectors import BROAD

_five_two, _five, _five_half = make_gather(5, 32), make_gather(5, 16), make_gather(5, 8)
_three_two, _three = make_gather(3, 32), make_gather(3, 16)
_one_four, _one = make_gather(1, 64), make_gather(1, 16)
_passed, _sort, _sort_one = make_pass(8), make_sort(4), make_sort(1)
_HALF = 8  # lanes of a tile for short runs
_FIVE = 32 if BROAD else 16  # lanes of a tile with five lines
_ZERO, _ONE = np.float32(0), np.float32(1)


@bare
def conv_backward(
    conv: ConvNet, held: ConvWork, net: Net, work: Workspace, batch: Index, drop: Dropping
) -> None:
    """Compute the gradients of the convolutions' parameters, given those of the first dense layer's input."""
    clear(held.gradient, np.int64(0), held.gradient.size)
    last, room = len(conv.numbers) - 1, held.strange.shape[1]
    for b in range(batch):
        none: Index = np.int64(0)
        top = shape_of(conv, last)
        turn(held.outputs, none, work.values, b * net.strides[0], top.outputs, top.area)
        turn(held.top, none, work.slopes, b * net.strides[0], top.outputs, top.area)
        values, at, slopes, there = held.outputs, none, held.top, none
        for layer in range(last, -1, -1):
            s = shape_of(conv, layer)
            _pass(
                s, values, at, slopes, there, conv.homes, held.passing, held.gradient, scale_of(drop, layer)
            )
            found = (held.passing, held.which, room * s.which + b * s.area * s.wide, conv.places, held.lists)
            sample = room * s.before + b * s.size
            _add_weights(s, held.gradient, held.inputs, sample, held.strange[layer, b], *found)
            if layer > 0:
                _add_slopes(s, held.slopes, held.params, *found)
                values, at, slopes, there = held.inputs, sample, held.slopes, s.before


@bare
def scale_of(drop: Dropping, hidden: Index) -> Real:
    """The factor by which dropout multiplies the gradients of what it keeps."""
    return keep_scale(drop.rates[hidden]) if drop.on else _ONE


@bare
def _pass(
    s: ConvShape, values: np.ndarray, at: Index, slopes: np.ndarray, there: Index, homes: np.ndarray,
    passing: np.ndarray, gradient: np.ndarray, scale: Real,
) -> None:  # fmt: skip
    """The gradients that pass a layer's ReLU and dropout, or its sigmoid.

    Where none passes, the outputs are 0. Adds them to the gradients of the biases.
    """
    apart()
    if s.sigmoid:
        _pass_sigmoid(s, values, at, slopes, there, homes, passing, gradient)
        return
    for c in range(0, s.wide, 8):
        source = (values, at + c, slopes, there + c, homes, s.homes)
        _passed(passing, c, s.wide, *source, gradient, s.biases + c, s.area, scale)
    clear(gradient, s.biases + s.outputs, s.wide - s.outputs)  # vectors end after a position's channels


@bare
def _pass_sigmoid(
    s: ConvShape, values: np.ndarray, at: Index, slopes: np.ndarray, there: Index, homes: np.ndarray,
    passing: np.ndarray, gradient: np.ndarray,
) -> None:  # fmt: skip
    """See `_pass`."""
    total = gradient[s.biases : s.biases + s.outputs]
    for p in range(s.area):
        home, out = homes[s.homes + p], passing[p * s.wide : p * s.wide + s.outputs]
        value, slope = values[at + home :], slopes[there + home :]
        for c in range(s.outputs):
            out[c] = slope[c] * (_ONE - value[c]) * value[c]  # in this order, as in torch
            total[c] += out[c]


@bare
def _gather(
    y: np.ndarray, ys: Index, x: np.ndarray, xo: Index, xs: Index, lists: Lists, count: Index, lines: Index,
    run: Index,
) -> None:  # fmt: skip
    """For each of `count` lists, y[target + (line, k)] += sum_e factors[e] * x[places[e] + (line, k)].

    There are `lines` of `run` numbers, a multiple of 16, or 8 with room for 16. All lists go through one tile
    before the next, so that the part of x that they share stays in the cache.
    """
    line = 0
    while line < lines:
        left = lines - line
        rows = 5 if left == 5 or left >= 8 else 3 if left >= 3 else 1
        k = 0
        while k < run:
            wide = _FIVE if rows == 5 else 32 if rows == 3 else 64
            wide = 16 if run - k < wide else wide
            for i in range(count):
                if lists.lengths[i] == 0:
                    continue
                at, target = lists.starts[i], lists.targets[i] + line * ys + k
                source = (x, xo + line * xs + k, xs, lists.places, at, lists.factors, at, lists.lengths[i])
                if rows == 5 and run <= _HALF:
                    _five_half(y, target, ys, *source)
                elif rows == 5 and wide == 32:
                    _five_two(y, target, ys, *source)
                elif rows == 5:
                    _five(y, target, ys, *source)
                elif rows == 3 and wide == 32:
                    _three_two(y, target, ys, *source)
                elif rows == 3:
                    _three(y, target, ys, *source)
                elif wide == 64:
                    _one_four(y, target, ys, *source)
                else:
                    _one(y, target, ys, *source)
            k += wide
        line += rows


@bare
def _add_weights(
    s: ConvShape, gradient: np.ndarray, inputs: np.ndarray, sample: Index, strange: Flag,
    passing: np.ndarray, which: np.ndarray, wo: Index, places: np.ndarray, lists: Lists,
) -> None:  # fmt: skip
    """Add a sample's gradients of the weights: for each output, multiples of the inputs its kernel saw."""
    apart()
    block, none, one = positions_at_once(s), np.int64(0), np.int64(1)
    run = _HALF if s.run <= _HALF else s.padded
    for first in range(0, s.area, block):
        count = min(block, s.area - first)
        for out in range(s.outputs):
            at = first * s.wide + out
            into = (lists.places, out * block, lists.factors, out * block)
            source = (passing, at, which, wo + at, s.wide, places, s.places + first * s.window, s.window)
            lists.lengths[out] = none if strange else list_positions(*into, *source, count)
            lists.starts[out] = out * block
            lists.targets[out] = s.weights + out * s.lines * s.padded
        _gather(gradient, s.padded, inputs, sample, s.line, lists, s.outputs, s.lines, run)
    for out in range(s.outputs):
        if strange:
            lists.lengths[0], lists.starts[0] = _list_all(s, out, passing, which, wo, places, lists), none
            lists.targets[0] = s.weights + out * s.lines * s.padded
            _gather(gradient, s.padded, inputs, sample, s.line, lists, one, s.lines, run)
        for line in range(s.lines):  # vectors end after the run, in the next pixels
            at = s.weights + (out * s.lines + line) * s.padded
            clear(gradient, at + s.run, s.padded - s.run)


@bare
def _list_all(
    s: ConvShape, out: Index, passing: np.ndarray, which: np.ndarray, wo: Index, places: np.ndarray,
    lists: Lists,
) -> Index:  # fmt: skip
    """List all places, including those whose gradient is 0; returns how many there are."""
    for i in range(s.everywhere):
        p, q = i // s.window, i % s.window
        own = p < s.area and which[wo + p * s.wide + out] == q
        place = places[s.places + i]
        lists.places[i], lists.factors[i] = place, passing[p * s.wide + out] if own else _ZERO
    return s.everywhere


@bare
def _add_slopes(
    s: ConvShape, slopes: np.ndarray, params: np.ndarray, passing: np.ndarray, which: np.ndarray, wo: Index,
    places: np.ndarray, lists: Lists,
) -> None:  # fmt: skip
    """The gradients of a layer's input: around each position, multiples of the kernels of its outputs."""
    apart()
    clear(slopes, s.before, s.size)
    none, step = np.int64(0), s.lines * s.padded
    for first in range(0, s.area, SORTED):
        count = min(SORTED, s.area - first)
        for i in range(count):
            at, into = (first + i) * s.wide, i * s.window * s.outputs
            args = (lists.places, into, lists.factors, into, passing, at, which, wo + at, step, s.outputs)
            lengths = _sort(*args) if s.window == 4 else (*_sort_one(*args), none, none, none)
            for q in range(s.window):
                j = i * s.window + q
                lists.lengths[j], lists.starts[j] = lengths[q], into + q * s.outputs
                lists.targets[j] = s.before + places[s.places + first * s.window + j]
        _gather(slopes, s.line, params, s.weights, s.padded, lists, count * s.window, s.lines, s.padded)
