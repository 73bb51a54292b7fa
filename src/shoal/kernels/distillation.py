"""Gradients of distillation losses: agreement with the predictions of another model.

The gradient of KL(p || softmax(z / tau)) with respect to z is (softmax(z / tau) - p) / tau, for a fixed p.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.kernels.jit import Index, Real, bare
from shoal.kernels.layout import Net, Workspace, clear

_ZERO, _ONE = np.float32(0), np.float32(1)


@bare
def _softmax(z: np.ndarray, at: Index, heads: Index, but: Index, tau: Real, out: np.ndarray) -> None:
    """out = softmax(z[at : at + heads] / tau) over all classes except `but`, which gets 0."""
    top, total = np.float32(-np.inf), _ZERO
    for head in range(heads):
        if head != but:
            top = max(top, z[at + head])
    for head in range(heads):
        out[head] = _ZERO if head == but else math.exp((z[at + head] - top) / tau)
        total += out[head]
    for head in range(heads):
        out[head] /= total


def make_soften(ahead: Callable[..., None]) -> Callable[..., None]:
    """Code for a model's predictions; `ahead(body, net, work, x, rows, -1)` computes its activations."""

    @bare
    def soften(
        said: np.ndarray, body: Any, net: Net, work: Workspace, x: np.ndarray, labels: np.ndarray,
        rows: np.ndarray, tau: float,
    ) -> None:  # fmt: skip
        """said[b] = the prediction for rows[b] at temperature tau, for all classes but the true one."""
        heads, stride = net.sizes[-1], net.strides[-1]
        batch = (work.values.size - net.values[-1]) // stride
        for first in range(0, rows.size, batch):
            some = rows[first : first + batch]
            ahead(body, net, work, x, some, np.int64(-1))
            for b in range(some.size):
                place = net.values[-1] + b * stride
                _softmax(work.values, place, heads, labels[some[b]], np.float32(tau), said[first + b])

    return soften


@bare
def follow(
    work: Workspace, at: Index, heads: Index, stride: Index, labels: np.ndarray, rows: np.ndarray,
    before: np.ndarray, now: np.ndarray, beta: float, tau: float,
) -> None:  # fmt: skip
    """Add the gradients of `beta tau^2 KL(before || now)` at temperature tau, averaged over samples `rows`.

    Outputs and gradients start at `at`; `now` is scratch space for one prediction.
    """
    share = np.float32(beta * tau / rows.size)
    for b in range(rows.size):
        _softmax(work.values, at, heads, labels[rows[b]], np.float32(tau), now)
        for head in range(heads):
            work.slopes[at + head] += share * (now[head] - before[b, head])
        at += stride


@bare
def agree(
    work: Workspace, at: Index, heads: Index, stride: Index, labels: np.ndarray, rows: np.ndarray,
    classes: np.ndarray, learned: np.ndarray, g_a: float, g_b: float, now: np.ndarray, said: np.ndarray,
) -> None:  # fmt: skip
    """Add the gradients of the terms for `generated` features (see `training_job`); their outputs come last.

    `now` and `said` are scratch space for one prediction each.
    """
    n, none = rows.size, np.int64(-1)
    share_a, share_b = np.float32(g_a / max(classes.size - n, 1)), np.float32(g_b / n)
    for b in range(n):
        label, here, there = labels[rows[b]], at + b * stride, at + (n + b) * stride
        clear(work.slopes, there, stride)
        if 0 <= label < heads and learned[label]:
            _softmax(work.values, here, heads, none, _ONE, now)
            _softmax(work.values, there, heads, none, _ONE, said)
            for head in range(heads):
                work.slopes[here + head] += share_b * (now[head] - said[head])
    for b in range(n, classes.size):
        here = at + (n + b) * stride
        clear(work.slopes, here, stride)
        _softmax(work.values, here, heads, none, _ONE, now)
        for head in range(heads):
            work.slopes[here + head] = share_a * (now[head] - (_ONE if head == classes[b] else _ZERO))
