"""Local training of small convolutional networks, and of perceptrons with dropout: many clients per call.

Convolutions come first and are processed sample by sample; dense layers follow, as in `mlp_training`. Clients
are trained one after another and share only the workspace, so a client's bits do not depend on the other
clients of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import float32, int64, uint64

from shoal.kernels.conv_backward import conv_backward, scale_of
from shoal.kernels.conv_forward import Dropping, conv_forward, step_key
from shoal.kernels.conv_layout import (
    ConvNet,
    ConvWork,
    lay_kernels,
    make_conv_work,
    pack_conv,
    pack_conv_difference,
    tables,
    unpack_conv,
)
from shoal.kernels.jit import Flag, Index, apart, bare, given, kernel, merged
from shoal.kernels.layout import (
    ROUNDED,
    Destination,
    Net,
    Workspace,
    make_net,
    make_work,
    pack,
    pack_difference,
    part_of,
    subtract,
    unpack,
)
from shoal.kernels.passes import StepRule, backward, descend, one_row
from shoal.kernels.plan import ConvPlan
from shoal.kernels.training_loop import CLIENTS, Clients, make_loop, make_spare

_ZERO = np.float32(0)


class ConvBody(NamedTuple):
    """What training needs to know about the layers, apart from the dense ones."""

    net: ConvNet
    work: ConvWork
    words: np.ndarray  # [C, 2] uint64: the clients' keys
    own: np.ndarray  # [2] uint64: the key of the client in training
    rates: np.ndarray  # [hidden layers] float32: of dropout
    names: np.ndarray  # [hidden layers] uint64
    scales: np.ndarray  # of dropout, as `backward` takes them


@merged
def _begin(body: ConvBody, net: Net, work: Workspace, client: Index, origin: np.ndarray) -> None:
    body.own[0], body.own[1] = body.words[client, 0], body.words[client, 1]
    pack_conv(body.net.order, origin, body.work.params)
    if body.work.origin.size:
        pack_conv(body.net.order, origin, body.work.origin)
    lay_kernels(body.net, body.work.params, body.work.kernels)
    pack(net, origin[body.net.order.size :], work.params)


@merged
def _lay(body: ConvBody, net: Net, work: Workspace, shift: np.ndarray, less: np.ndarray) -> Flag:
    own, fused = body.net.order.size, work.mix.size
    found = pack_conv_difference(body.net.order, shift[fused:], less[fused:], body.work.shift)
    found |= pack_difference(net, shift[fused + own :], less[fused + own :], work.shift)
    return found | subtract(work.mix_shift, shift[:fused], less[:fused])


@merged
def _dropping(body: ConvBody, step: Index) -> Dropping:
    first, second = step_key(body.own, max(step, 0))
    return Dropping(step >= 0, first, second, body.rates, body.names)


@merged
def conv_ahead(
    body: ConvBody, net: Net, work: Workspace, x: np.ndarray, rows: np.ndarray, step: Index
) -> None:
    """Compute the activations of all layers for the samples `rows`."""
    conv_forward(body.net, body.work, net, work, x, rows, _dropping(body, step))


@bare
def _descend_rounded(
    order: np.ndarray, held: ConvWork, work: Workspace, rule: StepRule, step: Index, origin: np.ndarray
) -> None:
    """As `descend`, but in the order of the model: the draw for a number depends on its place there."""
    apart()
    for first in range(0, order.size, ROUNDED):
        last = min(first + ROUNDED, order.size)
        w, g, v, s = held.flat[0], held.flat[1], held.flat[2], held.flat[3]
        for i in range(last - first):
            place = order[first + i]
            w[i], g[i] = held.params[place], held.gradient[place]
            v[i] = held.speed[place] if held.speed.size else _ZERO
            s[i] = held.shift[place] if held.shift.size else _ZERO
        piece = one_row(np.int64(0), last - first, work.mix.size + first)
        descend(w, v, s, g, piece, rule, step, origin, work.rounding)
        for i in range(last - first):
            held.params[order[first + i]] = w[i]
            if held.speed.size:
                held.speed[order[first + i]] = v[i]


@merged
def _back(
    body: ConvBody, net: Net, work: Workspace, batch: Index, last: Index, rule: StepRule, step: Index,
    origin: np.ndarray,
) -> None:  # fmt: skip
    own, held, none = body.net.order.size, body.work, np.int64(0)
    backward(net, work, batch, last, rule, step, origin, body.scales)
    if own:
        conv_backward(body.net, held, net, work, batch, _dropping(body, step))
        if rule.form.digits:
            _descend_rounded(body.net.order, held, work, rule, step, origin)
        else:
            piece, space = one_row(none, held.params.size, none), work.rounding
            args = (piece, rule, step, held.origin, space)
            descend(held.params, held.speed, held.shift, held.gradient, *args)
        lay_kernels(body.net, held.params, held.kernels)


@merged
def _end(body: ConvBody, net: Net, work: Workspace, origin: np.ndarray, to: Destination) -> Flag:
    held, own = body.work, body.net.order.size
    sound = unpack_conv(body.net.order, held.params, held.shift, origin, to, held.flat)
    return sound & unpack(net, work.params, work.shift, origin[own:], part_of(to, own, to.change.size))


@merged
def make_body(
    conv: ConvNet, held: ConvWork, words: np.ndarray, rates: np.ndarray, names: np.ndarray
) -> ConvBody:
    """The body of a network, with its dropout."""
    own, layers = np.zeros(2, np.uint64), len(conv.numbers)
    drop = Dropping(True, own[0], own[1], rates, names)
    skip = max(layers - 1, 0)  # the first dense layer's input is the last convolution's output
    scales = np.ones(rates.size - skip, np.float32)
    for hidden in range(skip, rates.size):
        scales[hidden - skip] = scale_of(drop, hidden)
    return ConvBody(conv, held, words, own, rates, names, scales)


_train_clients = make_loop(_begin, _lay, conv_ahead, _back, _end)


@kernel(
    int64(
        int64, int64, given(int64, 1), given(int64, 2), given(int64, 1), given(int64, 1), given(int64, 1),
        given(uint64, 2), given(float32, 1), given(uint64, 1), *CLIENTS,
    )
)  # fmt: skip
def _train(
    most: int, batch: int, sizes: np.ndarray, numbers: np.ndarray, places: np.ndarray, homes: np.ndarray,
    order: np.ndarray, keys: np.ndarray, rates: np.ndarray, names: np.ndarray,
    loss: int, params: int, start: np.ndarray, out: np.ndarray, change: np.ndarray, x: np.ndarray,
    labels: np.ndarray, targets: np.ndarray, index: np.ndarray,
    step_ptr: np.ndarray, client_ptr: np.ndarray, lr: np.ndarray, momentum: float, weight_decay: float,
    held: int, fusion: int, mu: float, shift: np.ndarray, less: np.ndarray, control: np.ndarray,
    reach: np.ndarray, centre: np.ndarray, mask: np.ndarray,
    strengths: np.ndarray, part_ptr: np.ndarray, part_scales: np.ndarray, tiny: float, beta: float,
    tau: float, features: np.ndarray, classes: np.ndarray, feature_ptr: np.ndarray, learned: np.ndarray,
    g_a: float, g_b: float, forms: np.ndarray, largest: np.ndarray, random: bool, words: np.ndarray,
    losses: np.ndarray, sound: np.ndarray, progress: np.ndarray,
) -> int:  # fmt: skip
    """See `make_loop`. No step has more than `batch` samples."""
    clients = Clients(
        loss, params, start, out, change, x, labels, targets, index, step_ptr, client_ptr, lr, momentum,
        weight_decay, held, fusion, mu, shift, less, control, reach, centre, mask, strengths,
        part_ptr, part_scales, tiny, beta, tau, features, classes, feature_ptr, learned, g_a, g_b, forms,
        largest, random, words, losses, sound, progress,
    )  # fmt: skip
    net, conv = make_net(sizes, batch), ConvNet(numbers, places, homes, order)
    shifts = shift.size > 0 or centre.size > 0
    work = make_work(net, batch, momentum != 0.0, shifts, forms.size > 0, fusion)
    kept = make_conv_work(conv, batch, momentum != 0.0, mu != 0.0, shifts, sizes.max())
    body = make_body(conv, kept, keys, rates, names)
    spare = make_spare(clients, sizes[-1])
    return _train_clients(clients, most, net, work, spare, body)  # type: ignore[return-value]


def conv_kernel(plan: ConvPlan, words: np.ndarray, names: np.ndarray) -> Callable[[int, int, Clients], int]:
    """A function that trains up to `most` clients of a network, with at most `batch` samples per step."""
    sizes, rates = (
        np.array(plan.dense.sizes, np.int64),
        np.array([drop.rate for drop in plan.drops], np.float32),
    )
    own = tables(plan)

    def some(most: int, batch: int, clients: Clients) -> int:
        return _train(most, batch, sizes, *own, words, rates, names, *clients)  # type: ignore[arg-type]

    return some
