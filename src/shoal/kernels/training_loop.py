"""The training loop that all kinds of networks share: clients, steps, losses and additional terms.

Every network ends in dense layers, which the loop knows. The layers before them, and the passes through the
whole network, are handled by functions that each kind of network supplies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import boolean, float32, float64, int64, uint64

from shoal.kernels.activations import fuse
from shoal.kernels.distillation import agree, follow, make_soften
from shoal.kernels.formats import NumberFormat
from shoal.kernels.jit import Flag, Index, bare, given, inner, merged
from shoal.kernels.layout import MODERATE, Destination, Net, Workspace, copy, leave, part_of, row_at
from shoal.kernels.losses import batch_loss
from shoal.kernels.passes import StepRule, descend, forward_layer, one_row
from shoal.kernels.progress import publish, take
from shoal.kernels.pulls import PIECE, pull
from shoal.kernels.squares import SUMS

_ONE = np.float32(1)

# the types of the fields of `Clients`
CLIENTS = (
    int64, int64, given(int64, 1), given(int64, 1), given(int64, 1),  # loss, params, start, out, change
    given(float32, 2), given(int64, 1), given(float32, 1),  # x, labels, targets
    given(int64, 1), given(int64, 1), given(int64, 1),  # rows, step_ptr, client_ptr
    given(float32, 1), float64, float64, int64, int64, float64,  # lr, momentum, decay, held, fusion, mu
    given(int64, 1), given(int64, 1),  # shift, less
    given(int64, 1), given(float32, 1),  # control, reach
    given(int64, 1), given(int64, 1), given(float32, 2),  # centre, mask, strengths
    given(int64, 1), given(float32, 1), float64,  # part_ptr, part_scales, tiny
    float64, float64,  # beta, tau
    given(float32, 2), given(int64, 1), given(int64, 1), given(boolean, 1),  # features and their classes
    float64, float64,  # g_a, g_b
    given(int64, 2), given(float32, 1), boolean, given(uint64, 2),  # forms, largest, random, words
    float64[::1], boolean[::1], int64[::1],  # losses, sound, progress
)  # fmt: skip


class Clients(NamedTuple):
    """The arguments of `training_job`, as kernels take them: rows of parameters are given by address."""

    loss: Index
    params: Index
    start: np.ndarray
    out: np.ndarray
    change: np.ndarray
    x: np.ndarray
    labels: np.ndarray
    targets: np.ndarray
    rows: np.ndarray
    step_ptr: np.ndarray
    client_ptr: np.ndarray
    lr: np.ndarray
    momentum: float
    weight_decay: float
    held: Index
    fusion: Index
    mu: float
    shift: np.ndarray
    less: np.ndarray
    control: np.ndarray
    reach: np.ndarray
    centre: np.ndarray
    mask: np.ndarray
    strengths: np.ndarray
    part_ptr: np.ndarray
    part_scales: np.ndarray
    tiny: float
    beta: float
    tau: float
    features: np.ndarray
    classes: np.ndarray
    feature_ptr: np.ndarray
    learned: np.ndarray
    g_a: float
    g_b: float
    forms: np.ndarray
    largest: np.ndarray
    random: Flag
    words: np.ndarray
    losses: np.ndarray
    sound: np.ndarray
    progress: np.ndarray  # see `shoal.kernels.progress`


class Spare(NamedTuple):
    """Scratch space that only some terms need."""

    known: np.ndarray  # [samples, heads] the initial model's predictions for a client's samples
    now: np.ndarray  # [heads] a prediction
    said: np.ndarray  # [heads] another prediction
    pull: np.ndarray  # [P] what is added to the gradient of a step that is pulled
    sums: np.ndarray  # for `pull`
    some: np.ndarray  # for `pull`


@inner
def make_spare(c: Clients, heads: Index) -> Spare:
    """Scratch space, large enough for each of the clients."""
    rows = np.int64(0)
    if c.beta != 0.0:
        for client in range(c.losses.size):
            start, stop = c.client_ptr[client], c.client_ptr[client + 1]
            rows = max(rows, c.step_ptr[stop] - c.step_ptr[start])
    return Spare(
        np.empty((rows, heads), np.float32), np.empty(heads, np.float32), np.empty(heads, np.float32),
        np.empty(c.params if c.centre.size else np.int64(0), np.float32), np.empty(SUMS),
        np.empty(PIECE, np.float32),
    )  # fmt: skip


def make_loop(
    begin: Callable[..., None],
    lay: Callable[..., Flag],
    ahead: Callable[..., None],
    back: Callable[..., None],
    end: Callable[..., Flag],
) -> Callable[..., Index]:
    """The loop for a kind of network, whose layers before the dense ones are its `body`.

    It trains up to `most` clients that no other thread has taken, and returns how many it trained.

    - `begin(body, net, work, client, origin)` loads a client's parameters.
    - `lay(body, net, work, shift, less)` loads what is added to every gradient, and returns whether any of it
      is not 0.
    - `ahead(body, net, work, x, rows, step)` runs the forward pass, in step -1 without dropout.
    - `back(body, net, work, n, last, rule, step, origin)` runs the backward pass and updates the parameters.
    - `end(body, net, work, origin, to)` writes the results, and returns whether they can be squared.
    """
    soften = make_soften(ahead)

    @bare
    def train_clients(c: Clients, most: Index, net: Net, work: Workspace, spare: Spare, body: Any) -> Index:
        trained = np.int64(0)
        common = c.reach.size > 0 and c.shift.size == 1
        moderate = _moderate(row_at(c.shift[0], c.params)) if common else True
        while trained < most:
            client = take(c.progress)
            if client >= c.losses.size:
                break
            whole = row_at(c.start[client if c.start.size > 1 else 0], c.params)
            origin = whole[c.fusion :]  # lambda comes first
            shift, less = _shift(c, client, whole), _less(c, client, whole)
            pulled = c.centre.size > 0
            moved: Flag = pulled
            if shift.size and not pulled:
                moved = lay(body, net, work, shift, less)  # a shift of zeros counts as none
            form, key = NumberFormat(np.int64(0), np.int64(0), np.float32(0)), (np.uint64(0), np.uint64(0))
            if c.forms.size > 0:
                form = NumberFormat(c.forms[client, 0], c.forms[client, 1], c.largest[client])
                key = (c.words[client, 0], c.words[client, 1])
            numbers = np.float32(c.momentum), np.float32(c.weight_decay), np.float32(c.mu)
            rule = StepRule(c.lr[client], *numbers, moved, form, c.random, key, c.held)
            copy(work.mix, np.int64(0), whole, np.int64(0), c.fusion)
            begin(body, net, work, client, origin)
            start, stop = c.client_ptr[client], c.client_ptr[client + 1]
            if c.beta != 0.0:
                rows = c.rows[c.step_ptr[start] : c.step_ptr[stop]]
                soften(spare.known, body, net, work, c.x, c.labels, rows, c.tau)
            total = 0.0
            for step in range(start, stop):
                rows = c.rows[c.step_ptr[step] : c.step_ptr[step + 1]]
                ahead(body, net, work, c.x, rows, step - start)
                if c.fusion:
                    fuse(net, work, c.x, rows)
                    forward_layer(net, work, net.weights.size - 1, np.int64(0), rows.size)
                total += _losses(c, net, work, spare, rows, c.step_ptr[step] - c.step_ptr[start])
                more = _features(c, net, work, spare, rows, step)
                if pulled:
                    centre = row_at(c.centre[client if c.centre.size > 1 else 0], c.params)
                    end(body, net, work, centre, Destination(whole[:0], spare.pull, whole[:0], _ONE))
                    _pull(c, client, spare, shift, less)
                    lay(body, net, work, spare.pull, whole[:0])
                back(body, net, work, rows.size, rows.size + more, rule, step - start, whole)
                if c.fusion:
                    piece = one_row(np.int64(0), c.fusion, np.int64(0))
                    args = (piece, rule, step - start, whole, work.rounding)
                    descend(work.mix, work.mix_speed, work.mix_shift, work.mix_slope, *args)
            if pulled and c.reach.size:
                lay(body, net, work, shift, less)
            to = _destination(c, client, whole)
            sound = end(body, net, work, origin, part_of(to, c.fusion, c.params))
            none = np.int64(0)
            sound &= leave(work.mix, work.mix_shift, none, whole, none, c.fusion, to)
            if c.reach.size and not common:
                moderate = _moderate(shift)
            c.sound[client] = sound and moderate
            c.losses[client] = total / max(stop - start, 1)
            publish(c.progress, client)
            trained += 1
        return trained

    return train_clients


@merged
def _shift(c: Clients, client: Index, whole: np.ndarray) -> np.ndarray:
    """What is added to every gradient of a client before anything is subtracted; empty if nothing is."""
    if c.shift.size == 0:
        return whole[:0]
    shift: np.ndarray = row_at(c.shift[client if c.shift.size > 1 else 0], c.params)
    return shift


@merged
def _less(c: Clients, client: Index, whole: np.ndarray) -> np.ndarray:
    """What is subtracted from a client's shift; empty if nothing is."""
    if c.less.size == 0:
        return whole[:0]
    less: np.ndarray = row_at(c.less[client], c.params)
    return less


@bare
def _moderate(values: np.ndarray) -> Flag:
    """Whether no number is larger than `MODERATE`."""
    strange = False
    for p in range(values.size):
        strange |= not abs(values[p]) <= MODERATE
    return not strange


@merged
def _destination(c: Clients, client: Index, whole: np.ndarray) -> Destination:
    """Where a client's results go."""
    out = row_at(c.out[client], c.params) if c.out.size else whole[:0]
    control = row_at(c.control[client], c.params) if c.reach.size else whole[:0]
    pace = _ONE / c.reach[client] if c.reach.size else _ONE
    return Destination(out, row_at(c.change[client], c.params), control, pace)


@merged
def _pull(c: Clients, client: Index, spare: Spare, shift: np.ndarray, less: np.ndarray) -> None:
    """Turn w - centre into what is added to the gradient, with the shift if there is one."""
    strengths = c.strengths[client]
    mask = row_at(c.mask[client if c.mask.size > 1 else 0], c.params) if c.mask.size else spare.pull[:0]
    pull(spare.pull, mask, strengths, c.part_ptr, c.part_scales, c.tiny, spare.sums, spare.some)
    for p in range(shift.size):
        spare.pull[p] += shift[p] - less[p] if less.size else shift[p]


@bare
def _losses(c: Clients, net: Net, work: Workspace, spare: Spare, rows: np.ndarray, first: Index) -> float:
    """The loss of a step whose first sample is the client's `first`; writes the gradients of the outputs."""
    top, heads, stride = net.values[-1], net.sizes[-1], net.strides[-1]
    loss = batch_loss(c.loss, work.values, heads, stride, c.labels, c.targets, rows, work.slopes, top)
    if c.beta != 0.0:
        follow(work, top, heads, stride, c.labels, rows, spare.known[first:], spare.now, c.beta, c.tau)
    return loss


@bare
def _features(c: Clients, net: Net, work: Workspace, spare: Spare, rows: np.ndarray, step: Index) -> Index:
    """Pass a step's generated features through the last layer, after its samples; returns how many."""
    if c.feature_ptr.size == 0:
        return np.int64(0)
    at, head = c.feature_ptr[step], net.weights.size - 1
    more: Index = c.feature_ptr[step + 1] - at
    for b in range(more):
        place = net.values[head] + (rows.size + b) * net.strides[head]
        copy(work.values, place, c.features[at + b], np.int64(0), net.sizes[head])
    if more:
        forward_layer(net, work, head, rows.size, more)
        outputs, classes = (net.values[-1], net.sizes[-1], net.strides[-1]), c.classes[at : at + more]
        agree(work, *outputs, c.labels, rows, classes, c.learned, c.g_a, c.g_b, spare.now, spare.said)
    return more
