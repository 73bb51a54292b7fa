"""Forward and backward passes through dense layers, for the mini-batch of one step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.kernels.activations import mask, unfuse
from shoal.kernels.bands import CHUNK, accumulate, dots, outers_one
from shoal.kernels.formats import MOMENTUM, WEIGHTS, NumberFormat, draw_for, to_either, to_nearest
from shoal.kernels.jit import Flag, Index, Real, Word, apart, bare, inner
from shoal.kernels.layout import BAND, Net, RoundingSpace, Workspace, clear

_COLUMNS = 128  # of a band of weights, which are used and updated before the next
_WHOLE = 1024  # a band of rows up to this length stays in the second cache: it is used as a whole
_ZERO, _ONE = np.float32(0), np.float32(1)


class StepRule(NamedTuple):
    """The hyper-parameters of a client's training step."""

    rate: Real
    momentum: Real
    weight_decay: Real
    mu: Real
    shifted: Flag  # whether a shift is added to every gradient
    form: NumberFormat  # of weights, gradients and momentum; without digits float32
    random: Flag  # whether weights and momentum are rounded to one of the two numbers around
    key: tuple[Word, Word]  # for that
    held: Index  # how many of the last layers are not trained


@bare
def plain(rule: StepRule) -> Flag:
    """Whether a step only subtracts the gradient; mu = 0 counts as no proximal term."""
    extras = rule.momentum != _ZERO or rule.weight_decay != _ZERO or rule.mu != _ZERO or rule.shifted
    return not extras and rule.form.digits == 0


@bare
def only_shifted(rule: StepRule) -> Flag:
    """Whether a step subtracts the gradient and the shift, and nothing else is done."""
    others = rule.momentum != _ZERO or rule.weight_decay != _ZERO or rule.mu != _ZERO
    return rule.shifted and not others and rule.form.digits == 0


@bare
def _shift(w: np.ndarray, at: Index, shift: np.ndarray, flat: Index, count: Index, rate: Real) -> None:
    """w -= rate * shift, for a row that is still in the cache."""
    row, more = w[at : at + count], shift[flat : flat + count]
    for i in range(count):
        row[i] -= rate * more[i]


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
    shift: np.ndarray,
    scales: np.ndarray,
) -> None:
    """Update the parameters, given the gradients of the outputs. A client's steps count from 0.

    `origin` and `shift` are those of all parameters, in the order of the model; dense layers come last in it.
    The last layer has `last` rows; those after the first `batch` affect only this layer. `scales` has what
    dropout multiplied each hidden layer by, and one more number if the input's gradients are wanted too.
    """
    one = np.int64(1)  # a literal would be compiled as a separate type
    end = origin.size  # of the layer's parameters in the flat arrays
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
                    accumulate(*into, work.slopes, dy + o, slope, one, *source, _ONE)
                if layer < net.weights.size - rule.held:
                    far = net.sizes[layer]
                    piece = Piece(at, rows, some, wide, min(some, far - c), flat + o * far + c, far)
                    args = (work.slopes, dy + o, one, slope, work.values, x + c, rows_in)
                    _update(work, piece, args, rule, step, origin, shift)
        if layer < net.weights.size - rule.held:
            _descend_bias(net, work, layer, rows_in, rule, step, origin, shift, end - out)
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
    wide: Index  # distance of two rows
    own: Index  # columns that are parameters, not padding
    flat: Index  # where it starts in the start and in the shift, and so what is drawn for it
    far: Index  # distance of two rows there


@bare
def one_row(at: Index, count: Index, flat: Index) -> Piece:
    """Neighbours."""
    return Piece(at, np.int64(1), count, count, count, flat, count)


@bare
def _update(
    work: Workspace, piece: Piece, source: Source, rule: StepRule, step: Index, origin: np.ndarray,
    shift: np.ndarray,
) -> None:  # fmt: skip
    """One step for some weights; `source` is what `accumulate` adds up to their gradient."""
    none, rows, columns, wide = np.int64(0), piece.rows, piece.columns, piece.wide
    if plain(rule):
        accumulate(work.params, piece.at, rows, columns, wide, *source, -rule.rate)
        return
    if only_shifted(rule):
        accumulate(work.params, piece.at, rows, columns, wide, *source, -rule.rate)
        for r in range(rows):
            place = piece.flat + r * piece.far
            _shift(work.params, piece.at + r * wide, shift, place, piece.own, rule.rate)
        return
    for r in range(rows):
        clear(work.gradient, r * wide, columns)
    accumulate(work.gradient, none, rows, columns, wide, *source, _ONE)
    descend(work.params, work.speed, work.gradient, piece, rule, step, origin, shift, work.rounding)


@bare
def _descend_bias(
    net: Net, work: Workspace, layer: Index, batch: Index, rule: StepRule, step: Index, origin: np.ndarray,
    shift: np.ndarray, flat: Index,
) -> None:  # fmt: skip
    """`_update` for a bias: a row whose input is always 1."""
    none, wide, at, dy = np.int64(0), net.strides[layer + 1], net.biases[layer], net.values[layer + 1]
    args = (wide, wide, work.one, none, none, none, work.slopes, dy, batch)
    if plain(rule):
        outers_one(work.params, at, *args, -rule.rate)
    elif only_shifted(rule):
        outers_one(work.params, at, *args, -rule.rate)
        _shift(work.params, at, shift, flat, net.sizes[layer + 1], rule.rate)
    else:
        clear(work.gradient, none, wide)
        outers_one(work.gradient, none, *args, _ONE)
        piece = one_row(at, net.sizes[layer + 1], flat)
        descend(work.params, work.speed, work.gradient, piece, rule, step, origin, shift, work.rounding)


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
    params: np.ndarray, speed: np.ndarray, gradient: np.ndarray, piece: Piece, rule: StepRule, step: Index,
    origin: np.ndarray, shift: np.ndarray, space: RoundingSpace,
) -> None:  # fmt: skip
    """One step for some parameters, as in torch's SGD. Only what is needed is read.

    Their gradient starts at 0 of `gradient`. Each row stays in the cache until it is done; all rows are done
    in one call, because to pass so many arguments takes longer than a step for a short row.
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
            more = shift[flat : flat + piece.own]
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
