"""Losses of multilayer perceptrons, without training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numba import float32, float64, int64, types

from shoal.kernels.jit import given, kernel
from shoal.kernels.layout import copy, make_net, make_work, pack
from shoal.kernels.losses import batch_loss
from shoal.kernels.passes import forward
from shoal.kernels.plan import SQUARED_ERROR, DensePlan
from shoal.kernels.progress import new_progress, take

_AT_ONCE = np.int64(64)  # samples per forward pass
_NO_LABELS, _NO_TARGETS = np.empty(0, np.int64), np.empty(0, np.float32)


@kernel(
    types.void(
        float64[::1], given(int64, 1), int64, given(float32, 1), given(float32, 2), given(int64, 1),
        given(float32, 1), given(int64, 1), given(int64, 1), int64[::1],
    )
)  # fmt: skip
def _mean_losses(
    out: np.ndarray, sizes: np.ndarray, loss: int, params: np.ndarray, x: np.ndarray, labels: np.ndarray,
    targets: np.ndarray, rows: np.ndarray, ptr: np.ndarray, progress: np.ndarray,
) -> None:  # fmt: skip
    """See `loss_job`. The model is laid out once for all clients that a thread takes."""
    net = make_net(sizes, _AT_ONCE)
    off = np.bool_(False)
    work = make_work(net, _AT_ONCE, off, off, off, np.int64(0))
    pack(net, params, work.params)
    top, stride = net.values[-1], net.strides[-1]
    while True:
        client = take(progress)
        if client >= out.size:
            break
        own, total = rows[ptr[client] : ptr[client + 1]], 0.0
        for first in range(0, own.size, _AT_ONCE):
            some = own[first : first + _AT_ONCE]
            for b in range(some.size):
                copy(work.values, b * net.strides[0], x[some[b]], np.int64(0), sizes[0])
            forward(net, work, some.size)
            mean = batch_loss(loss, work.values, sizes[-1], stride, labels, targets, some, work.slopes, top)
            total += mean * some.size
        out[client] = total / own.size


class LossJob(NamedTuple):
    """The losses of some clients. Any number of threads may `work` on it; each takes client after client."""

    found: np.ndarray  # [clients] float64, once all work is done
    work: Callable[[], None]


def loss_job(
    plan: DensePlan, params: np.ndarray, x: np.ndarray, y: np.ndarray, rows: Sequence[np.ndarray]
) -> LossJob:
    """The mean losses of a model [P] over each client's rows of the samples x [N, D].

    The bits of a client's loss do not depend on the other clients.
    """
    if params.shape != (plan.params,) or x.shape != (len(y), plan.sizes[0]):
        raise ValueError(f"{params.shape} parameters and {x.shape} samples do not fit {plan}")
    every, counts = np.concatenate(rows), [len(own) for own in rows]
    if not min(counts) or every.min() < 0 or every.max() >= len(x):
        raise ValueError(f"rows must be some of the {len(x)} of x")
    labels, targets = (_NO_LABELS, y) if plan.loss == SQUARED_ERROR else (y, _NO_TARGETS)
    sizes, ptr, out = np.array(plan.sizes, np.int64), np.cumsum([0, *counts]), np.empty(len(rows))
    args = (out, sizes, plan.loss, params, x, labels, targets, every, ptr, new_progress(len(rows)))
    return LossJob(out, lambda: _mean_losses(*args))
