"""The backward pass of convolutions, sample by sample.

Of the gradients of a convolution's outputs most are 0: of a window only the maximum has one, and behind ReLU
only what is positive. The others are collected in lists, and the tiles go through these. Where an input is
not finite, the lists have all positions: 0 times infinity has to show, as it does in torch.
"""

from __future__ import annotations

import numpy as np

from shoal.kernels.conv_forward import Dropping, keep_scale
from shoal.kernels.conv_layout import ConvNet, ConvShape, ConvWork, shape_of
from shoal.kernels.conv_tiles import make_gather
from shoal.kernels.jit import Flag, Index, Real, apart, inner
from shoal.kernels.layout import Net, Workspace, clear

_five, _three_two, _three = make_gather(5, 16), make_gather(3, 32), make_gather(3, 16)
_one_four, _one = make_gather(1, 64), make_gather(1, 16)
_ZERO, _ONE = np.float32(0), np.float32(1)


@inner
def conv_backward(
    conv: ConvNet, held: ConvWork, net: Net, work: Workspace, batch: Index, drop: Dropping
) -> None:
    """Compute the gradients of the convolutions' parameters, given those of the first dense layer's input."""
    clear(held.gradient, np.int64(0), held.gradient.size)
    last = len(conv.numbers) - 1
    for b in range(batch):
        at = b * net.strides[0]
        _pass_flat(shape_of(conv, last), work.values, work.slopes, at, held.passing, scale_of(drop, last))
        for layer in range(last, -1, -1):
            s, room = shape_of(conv, layer), held.strange.shape[1]
            _add_bias(s, held.passing, held.seen, held.gradient)
            which, places = held.which[room * s.which + b * s.area * s.wide :], conv.places[s.places :]
            lists = (held.passing, which, places, held.places, held.factors)
            sample = room * s.before + b * s.size
            _add_weights(s, held.gradient, held.inputs, sample, held.strange[layer, b], *lists)
            if layer > 0:
                _add_slopes(s, held.slopes, held.params, *lists)
                below = shape_of(conv, layer - 1)
                args = (conv.homes[below.homes :], held.inputs, sample, held.slopes, s.before)
                _pass_on(below, *args, held.passing, scale_of(drop, layer - 1))


@inner
def scale_of(drop: Dropping, hidden: Index) -> Real:
    """By what dropout multiplies the gradients of what it keeps."""
    return keep_scale(drop.rates[hidden]) if drop.on else _ONE


@inner
def _pass_flat(
    s: ConvShape, values: np.ndarray, slopes: np.ndarray, at: Index, passing: np.ndarray, scale: Real
) -> None:
    """What passes the last convolution's ReLU and dropout: both leave 0 where nothing passes."""
    apart()
    for c in range(s.outputs):
        value, slope = values[at + c * s.area :], slopes[at + c * s.area :]
        for p in range(s.area):
            passing[p * s.outputs + c] = _ZERO if value[p] <= _ZERO else slope[p] * scale


@inner
def _pass_on(
    s: ConvShape, homes: np.ndarray, values: np.ndarray, sample: Index, slopes: np.ndarray, at: Index,
    passing: np.ndarray, scale: Real,
) -> None:  # fmt: skip
    """The same behind another convolution, whose outputs have a border."""
    apart()
    for p in range(s.area):
        value, slope, into = sample + homes[p], at + homes[p], p * s.outputs
        for c in range(s.outputs):
            passing[into + c] = _ZERO if values[value + c] <= _ZERO else slopes[slope + c] * scale


@inner
def _add_bias(s: ConvShape, passing: np.ndarray, seen: np.ndarray, gradient: np.ndarray) -> None:
    """Add a sample's gradients of the biases, which are summed first, so that small ones are not lost."""
    apart()
    for c in range(s.outputs):
        seen[c] = _ZERO
    for p in range(s.area):
        for c in range(s.outputs):
            seen[c] += passing[p * s.outputs + c]
    for c in range(s.outputs):
        gradient[s.biases + c] += seen[c]


@inner
def _gather(
    y: np.ndarray, yo: Index, ys: Index, x: np.ndarray, xo: Index, xs: Index,
    places: np.ndarray, factors: np.ndarray, count: Index, lines: Index, run: Index,
) -> None:  # fmt: skip
    """y[line, k] += sum_e factors[e] * x[places[e] + (line, k)], for `lines` of `run` numbers."""
    line, none = 0, np.int64(0)
    while line < lines:
        left = lines - line
        rows = 5 if left == 5 or left >= 8 else 3 if left >= 3 else 1
        k = 0
        while k < run:
            some = (y, yo + line * ys + k, ys, x, xo + line * xs + k, xs, places, none, factors, none, count)
            if rows == 5:
                _five(*some)
                k += 16
            elif rows == 3 and run - k >= 32:
                _three_two(*some)
                k += 32
            elif rows == 3:
                _three(*some)
                k += 16
            elif run - k >= 64:
                _one_four(*some)
                k += 64
            else:
                _one(*some)
                k += 16
        line += rows


@inner
def _add_weights(
    s: ConvShape, gradient: np.ndarray, inputs: np.ndarray, sample: Index, strange: Flag,
    passing: np.ndarray, which: np.ndarray, places: np.ndarray, listed: np.ndarray, factors: np.ndarray,
) -> None:  # fmt: skip
    """Add a sample's gradients of the weights: for each output, multiples of what its kernel saw."""
    apart()
    for out in range(s.outputs):
        if strange:
            count = _list_all(s, out, passing, which, places, listed, factors)
        else:
            count = _list_positions(s, out, passing, which, places, listed, factors)
        if count == 0:
            continue
        at = s.weights + out * s.lines * s.padded
        _gather(
            gradient, at, s.padded, inputs, sample, s.line, listed, factors, count, s.lines, s.padded
        )
        for line in range(s.lines):  # vectors end behind the run, where the next pixels are
            clear(gradient, at + line * s.padded + s.run, s.padded - s.run)


@inner
def _list_positions(
    s: ConvShape, out: Index, passing: np.ndarray, which: np.ndarray, places: np.ndarray, listed: np.ndarray,
    factors: np.ndarray,
) -> Index:  # fmt: skip
    """List the kernel's places where an output has a gradient, with these; returns how many."""
    count = 0
    for p in range(s.area):
        factor = passing[p * s.outputs + out]
        factors[count] = factor
        listed[count] = places[p * s.window + which[p * s.wide + out]]
        count += 1 if factor != _ZERO else 0
    return count


@inner
def _list_all(
    s: ConvShape, out: Index, passing: np.ndarray, which: np.ndarray, places: np.ndarray, listed: np.ndarray,
    factors: np.ndarray,
) -> Index:  # fmt: skip
    """List all places, also those whose gradient is 0."""
    for i in range(s.everywhere):
        p, q = i // s.window, i % s.window
        own = p < s.area and which[p * s.wide + out] == q
        listed[i], factors[i] = places[i], passing[p * s.outputs + out] if own else _ZERO
    return s.everywhere


@inner
def _add_slopes(
    s: ConvShape, slopes: np.ndarray, params: np.ndarray,
    passing: np.ndarray, which: np.ndarray, places: np.ndarray, listed: np.ndarray, factors: np.ndarray,
) -> None:  # fmt: skip
    """The gradients of a layer's input: around each position multiples of the kernels of its outputs."""
    apart()
    clear(slopes, s.before, s.size)
    for p in range(s.area):
        for q in range(s.window):
            count = 0
            for out in range(s.outputs):
                factor = passing[p * s.outputs + out]
                factors[count] = factor
                listed[count] = out * s.lines * s.padded
                count += 1 if which[p * s.wide + out] == q and factor != _ZERO else 0
            if count:
                place = s.before + places[p * s.window + q]
                lists = (listed, factors, count, s.lines, s.padded)
                _gather(slopes, place, s.line, params, s.weights, s.padded, *lists)
