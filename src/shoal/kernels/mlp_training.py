"""Local training of multilayer perceptrons: many clients per call, and no gradient is stored.

A client is trained in a padded copy of its parameters that stays in the processor's cache. The backward pass
takes a band of rows of a weight matrix, first propagates the error through it to the layer below, and then
updates it in place. Clients are trained one after another and share only the workspace, so a client's bits
do not depend on the other clients of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import boolean, float32, float64, int64, uint64

from shoal.kernels.distillation import agree, follow, soften
from shoal.kernels.formats import NumberFormat
from shoal.kernels.jit import given, kernel
from shoal.kernels.layout import copy, make_net, make_work, pack, unpack
from shoal.kernels.losses import batch_loss
from shoal.kernels.passes import StepRule, backward, forward, forward_layer
from shoal.kernels.plan import CROSS_ENTROPY, SQUARED_ERROR, DensePlan

_SIGNATURE = int64(
    int64, int64, given(int64, 1), int64,  # first, last, sizes, loss
    given(float32, 2), float32[:, ::1], float32[:, ::1],  # start, out, change
    given(float32, 2), given(int64, 1), given(float32, 1),  # x, labels, targets
    given(int64, 1), given(int64, 1), given(int64, 1),  # index, step_ptr, client_ptr
    given(float32, 1), float64, float64, float64, given(float32, 2),  # lr, momentum, decay, mu, shift
    float64, float64,  # beta, tau
    given(float32, 2), given(int64, 1), given(int64, 1), given(boolean, 1),  # features and their classes
    float64, float64,  # g_a, g_b
    given(int64, 2), given(float32, 1), boolean, given(uint64, 2),  # forms, largest, random, words
    float64[::1], boolean[::1],  # losses, sound
)  # fmt: skip


@kernel(_SIGNATURE)
def _train(
    first: int, last: int, sizes: np.ndarray, loss: int, start: np.ndarray, out: np.ndarray,
    change: np.ndarray, x: np.ndarray, labels: np.ndarray, targets: np.ndarray, index: np.ndarray,
    step_ptr: np.ndarray, client_ptr: np.ndarray, lr: np.ndarray, momentum: float, weight_decay: float,
    mu: float, shift: np.ndarray, beta: float, tau: float, features: np.ndarray, classes: np.ndarray,
    feature_ptr: np.ndarray, learned: np.ndarray, g_a: float, g_b: float, forms: np.ndarray,
    largest: np.ndarray, random: bool, words: np.ndarray, losses: np.ndarray, sound: np.ndarray,
) -> int:  # fmt: skip
    """See `train`. Returns 0, or 1 + the index of the first step without samples or with an invalid one."""
    batch, generated = np.int64(1), feature_ptr.size > 0
    for step in range(client_ptr[first], client_ptr[last]):
        more = feature_ptr[step + 1] - feature_ptr[step] if generated else 0
        batch = max(batch, step_ptr[step + 1] - step_ptr[step] + more)
        for row in index[step_ptr[step] : step_ptr[step + 1]]:
            if not 0 <= row < x.shape[0]:
                return step + 1
        if step_ptr[step] == step_ptr[step + 1]:
            return step + 1
    net = make_net(sizes, batch)
    work = make_work(net, batch, momentum != 0.0, forms.size > 0)
    top, heads, stride, head = net.values[-1], sizes[-1], net.strides[-1], sizes.size - 2
    known = np.empty((0, 0), np.float32)
    for client in range(first, last):
        origin = start[client if start.shape[0] > 1 else 0]
        extra = shift[client] if shift.shape[0] else origin
        shifted = shift.shape[0] > 0 and np.any(extra)  # a shift of zeros counts as none
        form, key = NumberFormat(np.int64(0), np.int64(0), np.float32(0)), (np.uint64(0), np.uint64(0))
        if forms.size > 0:
            form = NumberFormat(forms[client, 0], forms[client, 1], largest[client])
            key = (words[client, 0], words[client, 1])
        rule = StepRule(
            lr[client],
            np.float32(momentum),
            np.float32(weight_decay),
            np.float32(mu),
            shifted,
            form,
            random,
            key,
        )
        pack(net, origin, work.params)
        begin, end = client_ptr[client], client_ptr[client + 1]
        if beta != 0.0:
            known = soften(net, work, batch, x, labels, index[step_ptr[begin] : step_ptr[end]], tau)
        total = 0.0
        for step in range(begin, end):
            rows = index[step_ptr[step] : step_ptr[step + 1]]
            n = rows.size
            for b in range(n):
                copy(work.values, b * net.strides[0], x[rows[b]], np.int64(0), sizes[0])
            forward(net, work, n)
            total += batch_loss(loss, work.values, heads, stride, labels, targets, rows, work.slopes, top)
            if beta != 0.0:
                before = known[step_ptr[step] - step_ptr[begin] :]
                follow(work, top, heads, stride, labels, rows, before, beta, tau)
            more = feature_ptr[step + 1] - feature_ptr[step] if generated else np.int64(0)
            if more:
                at, wide = feature_ptr[step], net.strides[head]
                for b in range(more):
                    place = net.values[head] + (n + b) * wide
                    copy(work.values, place, features[at + b], np.int64(0), sizes[head])
                forward_layer(net, work, head, n, more)
                agree(work, top, heads, stride, labels, rows, classes[at : at + more], learned, g_a, g_b)
            backward(net, work, n, n + more, rule, step - begin, origin, extra)
        sound[client] = unpack(net, work.params, origin, out[client], change[client])
        losses[client] = total / max(end - begin, 1)
    return 0


class Rounding(NamedTuple):
    """The number formats of clients' weights, gradients and momentum. See `train`."""

    forms: np.ndarray  # [C, 2] int64: `digits` and `least` of each client's `NumberFormat`
    largest: np.ndarray  # [C] float32
    random: bool  # whether weights and momentum are rounded at random; gradients are never
    words: np.ndarray  # [C, 2] uint64: each client's key, for that


NO_ROUNDING = Rounding(
    np.empty((0, 2), np.int64), np.empty(0, np.float32), False, np.empty((0, 2), np.uint64)
)


class ExtraFeatures(NamedTuple):
    """Additional features for the last layer. See `train`."""

    features: np.ndarray  # [F, width] float32: for each step one per sample, then additional ones
    classes: np.ndarray  # [F] int64
    ptr: np.ndarray  # [S + 1] int64: where the features of each step start
    learned: np.ndarray  # [classes] bool: samples of other classes do not count in the part of g_b
    g_a: float
    g_b: float


_NO_FEATURES = ExtraFeatures(
    np.empty((0, 0), np.float32), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_), 0, 0
)

Some = Callable[[int, int], None]  # trains the clients `first` to `last` (exclusive)
Spread = Callable[[Some, int], None]  # calls it for ranges that cover all clients


def _at_once(some: Some, clients: int) -> None:
    some(0, clients)


_NO_LABELS, _NO_TARGETS = np.empty(0, np.int64), np.empty(0, np.float32)
_NO_SHIFT = np.empty((0, 0), np.float32)


def train(
    plan: DensePlan,
    start: np.ndarray,
    out: np.ndarray,
    change: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    index: np.ndarray,
    step_ptr: np.ndarray,
    client_ptr: np.ndarray,
    lr: np.ndarray,
    losses: np.ndarray,
    *,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    mu: float = 0.0,
    shift: np.ndarray | None = None,
    beta: float = 0.0,
    tau: float = 1.0,
    generated: ExtraFeatures | None = None,
    rounding: Rounding = NO_ROUNDING,
    spread: Spread = _at_once,
) -> np.ndarray:
    """Train C clients by stochastic gradient descent. Returns [C] bool: whether each change can be squared.

    A step of a client: `g = dloss + mu*(w - w_start) + weight_decay*w + shift`, `v = momentum*v + g` (`v = g`
    in the first step), `w -= lr*v`.

    Args:
        plan: The model and its loss.
        start: [C or 1, P] float32, the initial parameters of each client, or of all.
        out: [C, P] float32, receives the trained parameters.
        change: [C, P] float32, receives the trained minus the initial parameters.
        x: [N, D] float32, the samples of all clients.
        y: [N] int64 labels, or float32 targets for the squared error.
        index: [T] int64, the rows of x for all steps of all clients, one after another.
        step_ptr: [S + 1] int64, where each step starts in `index`.
        client_ptr: [C + 1] int64, where each client starts in `step_ptr`.
        lr: [C] float32.
        losses: [C] float64, receives the mean over a client's steps of the loss before each update.
        momentum: As in torch.
        weight_decay: As in torch.
        mu: Weight of the proximal term.
        shift: [C, P] float32, added to every gradient.
        beta: Weight of the distillation of the initial model's predictions for all classes but the true one.
        tau: Temperature of the distillation.
        generated: Adds to the loss of a step with n samples `g_a` times the mean cross entropy of the last
            layer's outputs for the features after the first n, and `g_b` times the mean over its samples of
            KL(softmax of the outputs for the first n features || that for the samples), whose first argument
            has no gradient.
        rounding: Rounds g to the nearest number of a format, and v and w of every step to the nearest or at
            random. `start` must be rounded already.
        spread: Runs all clients; disjoint ranges of clients may run in parallel threads.
    """
    shift = _NO_SHIFT if shift is None else shift
    labels, targets = (_NO_LABELS, y) if plan.loss == SQUARED_ERROR else (y, _NO_TARGETS)
    clients, params = len(out), plan.params
    _check("start", start, (1 if len(start) == 1 else clients, params))
    _check("out", out, (clients, params))
    _check("change", change, (clients, params))
    _check("x", x, (len(y), plan.sizes[0]))
    _check("lr", lr, (clients,))
    _check("losses", losses, (clients,))
    sound = np.zeros(clients, np.bool_)
    _check("shift", shift, (clients, params) if len(shift) else (0, 0))
    _check_pointers("client_ptr", client_ptr, clients, len(step_ptr) - 1)
    _check_pointers("step_ptr", step_ptr, len(step_ptr) - 1, len(index))
    generated = _NO_FEATURES if generated is None else generated
    if len(generated.ptr):
        _check("features", generated.features, (len(generated.classes), plan.sizes[-2]))
        _check("learned", generated.learned, (plan.sizes[-1],))
        _check_pointers("ptr", generated.ptr, len(step_ptr) - 1, len(generated.classes))
    if len(rounding.forms):
        _check("forms", rounding.forms, (clients, 2))
        _check("largest", rounding.largest, (clients,))
        _check("words", rounding.words, (clients, 2))
    if (beta or len(generated.ptr)) and plan.loss != CROSS_ENTROPY:
        raise ValueError("distillation needs the cross entropy of classes")
    sizes = np.array(plan.sizes, np.int64)

    def some(first: int, last: int) -> None:
        if not 0 <= first <= last <= clients:
            raise ValueError(f"clients {first} to {last} are not among {clients}")
        bad = _train(
            first, last, sizes, plan.loss, start, out, change, x, labels, targets,
            index, step_ptr, client_ptr, lr, momentum, weight_decay, mu, shift, beta, tau,
            *generated, *rounding, losses, sound,
        )  # fmt: skip
        if bad:
            raise ValueError(
                f"step {bad - 1} has no samples, or samples that are not among the {len(x)} of x"
            )

    spread(some, clients)
    return sound


def _check(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Check the shape: kernels do not check bounds."""
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {array.shape}")


def _check_pointers(name: str, pointers: np.ndarray, count: int, end: int) -> None:
    """Check that pointers mark `count` consecutive ranges within 0 ... `end`."""
    _check(name, pointers, (count + 1,))
    if pointers[0] < 0 or pointers[-1] > end or (pointers[1:] < pointers[:-1]).any():
        raise ValueError(f"{name} must go up from at least 0 to at most {end}, got {pointers}")
