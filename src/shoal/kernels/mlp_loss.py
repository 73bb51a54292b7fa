"""Losses of multilayer perceptrons, without training."""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int64

from shoal.kernels.jit import given, kernel
from shoal.kernels.layout import copy, make_net, make_work, pack
from shoal.kernels.losses import batch_loss
from shoal.kernels.passes import forward
from shoal.kernels.plan import SQUARED_ERROR, DensePlan

_AT_ONCE = 64  # samples per forward pass
_NO_LABELS, _NO_TARGETS = np.empty(0, np.int64), np.empty(0, np.float32)


@kernel(
    float64(
        given(int64, 1), int64, given(float32, 1), given(float32, 2), given(int64, 1), given(float32, 1),
        given(int64, 1),
    )
)  # fmt: skip
def _mean_loss(
    sizes: np.ndarray, loss: int, params: np.ndarray, x: np.ndarray, labels: np.ndarray, targets: np.ndarray,
    rows: np.ndarray,
) -> float:  # fmt: skip
    """See `mean_loss`."""
    batch = min(_AT_ONCE, rows.size)
    net = make_net(sizes, batch)
    work = make_work(net, batch, False, False, np.int64(0))
    pack(net, params, work.params)
    total = 0.0
    for first in range(0, rows.size, batch):
        some = rows[first : first + batch]
        for b in range(some.size):
            copy(work.values, b * net.strides[0], x[some[b]], np.int64(0), sizes[0])
        forward(net, work, some.size)
        top, stride = net.values[-1], net.strides[-1]
        mean = batch_loss(loss, work.values, sizes[-1], stride, labels, targets, some, work.slopes, top)
        total += mean * some.size
    return total / rows.size


def mean_loss(plan: DensePlan, params: np.ndarray, x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> float:
    """The mean loss of a model [P] over some rows, at least one, of the samples x [N, D]."""
    if params.shape != (plan.params,) or x.shape != (len(y), plan.sizes[0]):
        raise ValueError(f"{params.shape} parameters and {x.shape} samples do not fit {plan}")
    if not len(rows) or rows.min() < 0 or rows.max() >= len(x):
        raise ValueError(f"rows must be some of the {len(x)} of x")
    labels, targets = (_NO_LABELS, y) if plan.loss == SQUARED_ERROR else (y, _NO_TARGETS)
    sizes = np.array(plan.sizes, np.int64)
    return float(_mean_loss(sizes, plan.loss, params, x, labels, targets, rows))
