"""Activations between dense layers: the backward pass of ReLU and dropout, and fused features.

Fused features are `lambda g + (1 - lambda) h`, with one lambda or one for each feature: h is the input of the
last layer, and g is fixed and stored after each sample.
"""

from __future__ import annotations

import numpy as np

from shoal.kernels.jit import Index, Real, bare
from shoal.kernels.layout import Net, Workspace

_ZERO, _ONE = np.float32(0), np.float32(1)


@bare
def mask(slopes: np.ndarray, values: np.ndarray, at: Index, n: Index, scale: Real) -> None:
    """The backward pass of ReLU, and of dropout, which multiplied the values it kept by `scale`.

    Values in the padding are 0, so the gradients there become 0 too.
    """
    left, right = slopes[at : at + n], values[at : at + n]
    for i in range(n):
        left[i] = _ZERO if right[i] <= _ZERO else left[i] * scale


@bare
def fuse(net: Net, work: Workspace, x: np.ndarray, rows: np.ndarray) -> None:
    """Replace the features that enter the last layer by fused ones, and save the originals."""
    top = net.weights.size - 1
    wide, stride, shared = net.sizes[top], net.strides[top], work.mix.size == 1
    first = x.shape[1] - wide
    for b in range(rows.size):
        at = net.values[top] + b * stride
        for i in range(wide):
            part = work.mix[0] if shared else work.mix[i]
            own, given = work.values[at + i], x[rows[b], first + i]
            work.own[b * stride + i], work.given[b * stride + i] = own, given
            work.values[at + i] = part * given + (_ONE - part) * own


@bare
def unfuse(net: Net, work: Workspace, batch: Index) -> None:
    """Undo `fuse`, and turn the gradients of fused features into those of the original ones and of lambda."""
    top = net.weights.size - 1
    wide, stride, shared = net.sizes[top], net.strides[top], work.mix.size == 1
    for i in range(work.mix.size):
        work.mix_slope[i] = _ZERO
    for b in range(batch):
        at = net.values[top] + b * stride
        for i in range(wide):
            k = np.int64(0) if shared else np.int64(i)
            own, slope = work.own[b * stride + i], work.slopes[at + i]
            work.mix_slope[k] += slope * (work.given[b * stride + i] - own)
            work.slopes[at + i] = (_ONE - work.mix[k]) * slope
            work.values[at + i] = own
