"""The backward pass of convolutions, sample by sample.

Of the gradients of a convolution's outputs most are 0: of a window only the maximum has one, and behind ReLU
only what is positive. The others are collected in lists, and the tiles go through these. Where an input is
not finite, the lists have all positions: 0 times infinity has to show, as it does in torch.
"""

from __future__ import annotations

import numpy as np

from shoal.kernels.conv_forward import Dropping, keep_scale
from shoal.kernels.conv_layout import ConvNet, ConvWork
from shoal.kernels.conv_tiles import make_gather
from shoal.kernels.jit import Index, Real, inner
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
    last = conv.run.size - 1
    for b in range(batch):
        _pass_flat(conv, held, work, b * net.strides[0], scale_of(drop, last))
        for layer in range(last, -1, -1):
            _add_bias(conv, held, layer)
            _add_weights(conv, held, layer, b)
            if layer > 0:
                _add_slopes(conv, held, layer, b)
                _pass_on(conv, held, layer - 1, b, scale_of(drop, layer - 1))


@inner
def scale_of(drop: Dropping, hidden: Index) -> Real:
    """By what dropout multiplies the gradients of what it keeps."""
    return keep_scale(drop.rates[hidden]) if drop.on else _ONE


@inner
def _pass_flat(conv: ConvNet, held: ConvWork, work: Workspace, at: Index, scale: Real) -> None:
    """What passes the last convolution's ReLU and dropout: both leave 0 where nothing passes."""
    last = conv.run.size - 1
    outs, area = conv.outputs[last], conv.area[last]
    for c in range(outs):
        values = work.values[at + c * area : at + (c + 1) * area]
        slopes = work.slopes[at + c * area : at + (c + 1) * area]
        for p in range(area):
            held.passing[p * outs + c] = _ZERO if values[p] <= _ZERO else slopes[p] * scale


@inner
def _pass_on(conv: ConvNet, held: ConvWork, layer: Index, b: Index, scale: Real) -> None:
    """The same behind another convolution."""
    outs, next_at = conv.outputs[layer], conv.inputs_at[layer + 1]
    sample = held.strange.shape[1] * next_at + b * conv.size[layer + 1]
    for p in range(conv.area[layer]):
        home = conv.homes[conv.homes_at[layer] + p]
        values = held.inputs[sample + home : sample + home + outs]
        slopes = held.slopes[next_at + home : next_at + home + outs]
        passing = held.passing[p * outs : (p + 1) * outs]
        for c in range(outs):
            passing[c] = _ZERO if values[c] <= _ZERO else slopes[c] * scale


@inner
def _add_bias(conv: ConvNet, held: ConvWork, layer: Index) -> None:
    outs, at = conv.outputs[layer], conv.biases_at[layer]
    clear(held.seen, np.int64(0), outs)
    seen, total = held.seen[:outs], held.gradient[at : at + outs]
    for p in range(conv.area[layer]):
        row = held.passing[p * outs : (p + 1) * outs]
        for c in range(outs):
            seen[c] += row[c]
    for c in range(outs):
        total[c] += seen[c]


@inner
def _gather(
    y: np.ndarray, yo: Index, ys: Index, x: np.ndarray, xo: Index, xs: Index,
    places: np.ndarray, factors: np.ndarray, at: Index, count: Index, lines: Index, run: Index,
) -> None:  # fmt: skip
    """y[line, k] += sum_e factors[e] * x[places[e] + (line, k)], for `lines` of `run` numbers."""
    line = 0
    while line < lines:
        left = lines - line
        rows = 5 if left == 5 or left >= 8 else 3 if left >= 3 else 1
        k = 0
        while k < run:
            some = (y, yo + line * ys + k, ys, x, xo + line * xs + k, xs, places, at, factors, at, count)
            if rows == 5:
                _five(*some)
                k += 16
            elif rows == 3:
                if run - k >= 32:
                    _three_two(*some)
                    k += 32
                else:
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
def _add_weights(conv: ConvNet, held: ConvWork, layer: Index, b: Index) -> None:
    """Add a sample's gradients of the weights: for each output, multiples of what its kernel saw."""
    lines, padded, run = conv.lines[layer], conv.padded[layer], conv.run[layer]
    sample = held.strange.shape[1] * conv.inputs_at[layer] + b * conv.size[layer]
    for out in range(conv.outputs[layer]):
        if held.strange[layer, b]:
            count = _list_all(conv, held, layer, b, out)
        else:
            count = _list_positions(conv, held, layer, b, out)
        if count == 0:
            continue
        at = conv.weights_at[layer] + out * lines * padded
        lists = (held.places, held.factors, np.int64(0), count, lines, padded)
        _gather(held.gradient, at, padded, held.inputs, sample, conv.line[layer], *lists)
        for line in range(lines):  # vectors end behind the run, where the next pixels are
            clear(held.gradient, at + line * padded + run, padded - run)


@inner
def _list_positions(conv: ConvNet, held: ConvWork, layer: Index, b: Index, out: Index) -> Index:
    """List the kernel's places where an output has a gradient, with these; returns how many."""
    outs, wide, window, area = conv.outputs[layer], conv.wide[layer], conv.window[layer], conv.area[layer]
    which = held.strange.shape[1] * conv.which_at[layer] + b * area * wide + out
    places, count = conv.places[conv.places_at[layer] :], 0
    for p in range(area):
        factor = held.passing[p * outs + out]
        held.factors[count] = factor
        held.places[count] = places[p * window + held.which[which + p * wide]]
        count += 1 if factor != _ZERO else 0
    return count


@inner
def _list_all(conv: ConvNet, held: ConvWork, layer: Index, b: Index, out: Index) -> Index:
    """List all places, also those whose gradient is 0."""
    outs, wide, window, area = conv.outputs[layer], conv.wide[layer], conv.window[layer], conv.area[layer]
    which = held.strange.shape[1] * conv.which_at[layer] + b * area * wide + out
    everywhere = conv.everywhere[layer]
    for i in range(everywhere):
        p, q = i // window, i % window
        held.places[i] = conv.places[conv.places_at[layer] + i]
        own = p < area and held.which[which + p * wide] == q
        held.factors[i] = held.passing[p * outs + out] if own else _ZERO
    return everywhere


@inner
def _add_slopes(conv: ConvNet, held: ConvWork, layer: Index, b: Index) -> None:
    """The gradients of a layer's input: around each position multiples of the kernels of its outputs."""
    outs, wide, window, area = conv.outputs[layer], conv.wide[layer], conv.window[layer], conv.area[layer]
    lines, padded, at = conv.lines[layer], conv.padded[layer], conv.inputs_at[layer]
    clear(held.slopes, at, conv.size[layer])
    which = held.strange.shape[1] * conv.which_at[layer] + b * area * wide
    for p in range(area):
        passing, codes = held.passing[p * outs : (p + 1) * outs], held.which[which + p * wide :]
        for q in range(window):
            count = 0
            for out in range(outs):
                held.factors[count] = passing[out]
                held.places[count] = out * lines * padded
                count += 1 if codes[out] == q and passing[out] != _ZERO else 0
            if count:
                place = at + conv.places[conv.places_at[layer] + p * window + q]
                lists = (held.places, held.factors, np.int64(0), count, lines, padded)
                source = (held.params, conv.weights_at[layer], padded)
                _gather(held.slopes, place, conv.line[layer], *source, *lists)
