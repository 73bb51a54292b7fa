"""Outputs of convolutional networks, without training."""

from __future__ import annotations

import numpy as np
from numba import float32, int64, types, uint64

from shoal.kernels.conv_forward import Dropping, conv_forward
from shoal.kernels.conv_layout import ConvNet, lay_kernels, make_conv_work, pack_conv, tables
from shoal.kernels.jit import Index, given, kernel
from shoal.kernels.layout import copy, make_net, make_work, pack
from shoal.kernels.plan import ConvPlan

_AT_ONCE = np.int64(64)  # samples per forward pass
_NO_RATES, _NO_NAMES = np.empty(0, np.float32), np.empty(0, np.uint64)


@kernel(
    types.void(
        given(int64, 1), given(int64, 2), given(int64, 1), given(int64, 1), given(int64, 1),
        given(float32, 1), given(uint64, 1),
        given(float32, 1), given(float32, 2), given(int64, 1), float32[:, ::1],
    )
)  # fmt: skip
def _outputs(
    sizes: np.ndarray, numbers: np.ndarray, places: np.ndarray, homes: np.ndarray, order: np.ndarray,
    rates: np.ndarray, names: np.ndarray,
    params: np.ndarray, x: np.ndarray, rows: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """See `conv_outputs`."""
    batch: Index = min(_AT_ONCE, np.int64(rows.size))
    conv = ConvNet(numbers, places, homes, order)
    net, off, none = make_net(sizes, batch), np.bool_(False), np.uint64(0)
    work = make_work(net, batch, off, off, off, np.int64(0))
    held = make_conv_work(conv, batch, off, off, off, sizes.max())
    pack_conv(order, params, held.params)
    lay_kernels(conv, held.params, held.kernels)
    pack(net, params[order.size :], work.params)
    drop = Dropping(off, none, none, rates, names)
    for first in range(0, rows.size, batch):
        some = rows[first : first + batch]
        conv_forward(conv, held, net, work, x, some, drop)
        for b in range(some.size):
            copy(out[first + b], np.int64(0), work.values, net.values[-1] + b * net.strides[-1], sizes[-1])


def conv_outputs(plan: ConvPlan, params: np.ndarray, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """[rows, heads]: the outputs of a model [P], without dropout, for the given rows of samples x [N, D]."""
    if params.shape != (plan.params,) or x.shape[1:] != (plan.inputs,):
        raise ValueError(f"{params.shape} parameters and {x.shape} samples do not fit {plan}")
    if len(rows) and (rows.min() < 0 or rows.max() >= len(x)):
        raise ValueError(f"rows must be some of the {len(x)} of x")
    out = np.empty((len(rows), plan.dense.sizes[-1]), np.float32)
    if len(rows):
        _outputs(
            np.array(plan.dense.sizes, np.int64), *tables(plan), _NO_RATES, _NO_NAMES, params, x, rows, out
        )
    return out
