"""Forward and backward passes through dense layers, for the mini-batch of one step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.kernels.activations import mask, unfuse
from shoal.kernels.bands import CHUNK, accumulate, dots
from shoal.kernels.formats import MOMENTUM, WEIGHTS, NumberFormat, draw_for, to_either, to_nearest
from shoal.kernels.jit import Flag, Index, Real, Word, apart, bare, inner
from shoal.kernels.layout import BAND, Net, RoundingSpace, Workspace, clear

_COLUMNS = 128  # columns of a band of weights that are used and updated before the next
_WHOLE = 1024  # a band of rows up to this length stays in the second-level cache, and is used as a whole
_ZERO, _ONE = np.float32(0), np.float32(1)


class StepRule(NamedTuple):
    """The hyper-parameters of a client's training step."""

    rate: Real
    momentum: Real
    weight_decay: Real
    mu: Real
    shifted: Flag  # whether a shift is added to every gradient
    form: NumberFormat  # of weights, gradients and momentum; float32 if it has no digits
    random: Flag  # whether weights and momentum are rounded to a random neighbour
    key: tuple[Word, Word]  # for random rounding
    held: Index  # how many of the last layers are not trained


@bare
def plain(rule: StepRule) -> Flag:
    """Whether a step only subtracts the gradient, shifted or not; mu = 0 counts as no proximal term."""
    extras = rule.momentum != _ZERO or rule.weight_decay != _ZERO or rule.mu != _ZERO
    return not extras and rule.form.digits == 0


@bare
def forward(net: Net, work: Workspace, batch: Index) -> None:
    """Compute the activations of all layers from those of the input."""
    for layer in range(net.weights.size):
        forward_layer(net, work, layer, np.int64(0), batch)


@bare
def forward_layer(net: Net, work: Workspace, layer: Index, first: Index, batch: Index) -> None:
    """Compute the outputs of a layer for `batch` rows of its input, starting at the row `first`."""
    apart()
    out, wide, ys = net.sizes[layer + 1], net.strides[layer], net.strides[layer + 1]
    xo, yo = net.values[layer] + first * wide, net.values[layer + 1] + first * ys
    for b in range(0, batch, CHUNK):
        args = (wide, work.values, xo + b * wide, min(CHUNK, batch - b))
        dots(work.values, yo + b * ys, ys, out, work.params, net.weights[layer], *args)
    bias = work.params[net.biases[layer] : net.biases[layer] + out]
    for b in range(batch):
        row = work.values[yo + b * ys : yo + b * ys + out]
        if layer + 1 < net.weights.size:
            for i in range(out):
                value = row[i] + bias[i]
                row[i] = _ZERO if value <= _ZERO else value  # in this form nan stays nan
        else:
            for i in range(out):
                row[i] += bias[i]


@bare
def backward(
    net: Net,
    work: Workspace,
    batch: Index,
    last: Index,
    rule: StepRule,
    step: Index,
    origin: np.ndarray,
    scales: np.ndarray,
) -> None:
    """Update the parameters, given the gradients of the outputs. A client's steps count from 0.

    `origin` has all initial parameters, in the order of the model; dense layers come last in it. The last
    layer has `last` rows; those after the first `batch` affect only this layer. `scales` has the factor by
    which dropout multiplied each hidden layer, and one more if the input's gradients are wanted too.
    """
    none, one = np.int64(0), np.int64(1)  # literals would be compiled as separate types
    end = origin.size  # of the layer's parameters in the order of the model
    lowest = net.weights.size - scales.size  # the lowest layer whose input's gradients are computed
    for layer in range(net.weights.size - 1, -1, -1):
        out, wide, slope = net.sizes[layer + 1], net.strides[layer], net.strides[layer + 1]
        x, dx, dy, w = net.values[layer], net.values[layer], net.values[layer + 1], net.weights[layer]
        flat = end - out * (net.sizes[layer] + 1)
        rows_in = last if layer == net.weights.size - 1 else batch
        if layer >= lowest:
            clear(work.slopes, dx, batch * wide)
        for o in range(0, out, BAND):
            rows = min(BAND, out - o)
            columns = wide if wide <= _WHOLE else _COLUMNS
            for c in range(0, wide, columns):
                some, at = min(columns, wide - c), w + o * wide + c
                if layer >= lowest:
                    into, source = (work.slopes, dx + c, batch, some, wide), (work.params, at, rows)
                    accumulate(*into, work.slopes, dy + o, slope, one, *source, _ONE, work.slopes[:0])
                if layer < net.weights.size - rule.held:
                    far = net.sizes[layer]
                    piece = Piece(at, rows, some, wide, min(some, far - c), flat + o * far + c, far)
                    args = (work.slopes, dy + o, one, slope, work.values, x + c, rows_in)
                    _update(work, piece, args, rule, step, origin)
        if layer < net.weights.size - rule.held:
            bias = Piece(net.biases[layer], one, slope, slope, out, end - out, out)
            ones = (work.one, none, none, none, work.slopes, dy, rows_in)  # its input is always 1
            _update(work, bias, ones, rule, step, origin)
        if layer == net.weights.size - 1 and work.mix.size:
            unfuse(net, work, batch)
        if layer > 0:
            mask(work.slopes, work.values, dx, batch * wide, scales[layer - lowest])
        end = flat


Source = tuple[np.ndarray, Index, Index, Index, np.ndarray, Index, Index]


class Piece(NamedTuple):
    """Some parameters: a part of a matrix of weights, or one row."""

    at: Index  # where it starts
    rows: Index
    columns: Index
    wide: Index  # distance between two rows
    own: Index  # columns that are parameters, not padding
    flat: Index  # where it starts in the order of the model, which determines its random numbers
    far: Index  # distance between two rows in that order


@bare
def one_row(at: Index, count: Index, flat: Index) -> Piece:
    """Adjacent parameters, as one row."""
    return Piece(at, np.int64(1), count, count, count, flat, count)


@bare
def _update(
    work: Workspace, piece: Piece, source: Source, rule: StepRule, step: Index, origin: np.ndarray
) -> None:
    """One step for some weights; `source` is what `accumulate` sums up to get their gradient."""
    none, rows, columns, wide = np.int64(0), piece.rows, piece.columns, piece.wide
    if plain(rule):
        shift = work.shift if rule.shifted else work.shift[:0]
        accumulate(work.params, piece.at, rows, columns, wide, *source, -rule.rate, shift)
        return
    for r in range(rows):
        clear(work.gradient, r * wide, columns)
    accumulate(work.gradient, none, rows, columns, wide, *source, _ONE, work.shift[:0])
    descend(work.params, work.speed, work.shift, work.gradient, piece, rule, step, origin, work.rounding)


@inner
def _round(
    space: RoundingSpace, x: np.ndarray, rule: StepRule, step: Index, purpose: Word, flat: Index
) -> None:
    """Round the momentum or the weights of a row of parameters, the first of which is at `flat`."""
    if rule.random:
        skip = draw_for(rule.key, step, purpose, flat, x.size, space.noise)
        to_either(x, rule.form, space.noise[skip : skip + x.size], space.unit, space.inverse)
    else:
        to_nearest(x, rule.form, space.unit, space.inverse)


@bare
def descend(
    params: np.ndarray, speed: np.ndarray, shift: np.ndarray, gradient: np.ndarray, piece: Piece,
    rule: StepRule, step: Index, origin: np.ndarray, space: RoundingSpace,
) -> None:  # fmt: skip
    """One step for some parameters, as in torch's SGD. Only what is needed is read.

    Their gradient starts at index 0 of `gradient`; momentum and shift have the layout of the parameters. Each
    row stays in the cache until it is done. All rows are done in one call, because passing that many
    arguments takes longer than a step for a short row.
    """
    apart()
    for r in range(piece.rows):
        at, from_, flat = piece.at + r * piece.wide, r * piece.wide, piece.flat + r * piece.far
        w, g = params[at : at + piece.own], gradient[from_ : from_ + piece.own]
        if rule.mu != _ZERO:
            start = origin[flat : flat + piece.own]
            for i in range(g.size):
                g[i] += rule.mu * (w[i] - start[i])
        if rule.weight_decay != _ZERO:
            for i in range(g.size):
                g[i] += rule.weight_decay * w[i]
        if rule.shifted:
            more = shift[at : at + piece.own]
            for i in range(g.size):
                g[i] += more[i]
        if rule.form.digits:
            to_nearest(g, rule.form, space.unit, space.inverse)
        if rule.momentum != _ZERO:
            v = speed[at : at + piece.own]
            for i in range(g.size):
                v[i] = g[i] if step == 0 else rule.momentum * v[i] + g[i]
            if rule.form.digits:
                _round(space, v, rule, step, MOMENTUM, flat)
            g = v
        for i in range(g.size):
            w[i] -= rule.rate * g[i]
        if rule.form.digits:
            _round(space, w, rule, step, WEIGHTS, flat)
