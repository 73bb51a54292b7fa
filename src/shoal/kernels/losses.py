"""Losses of single samples, and their gradients with respect to the outputs."""

from __future__ import annotations

import math

import numpy as np

from shoal.kernels.jit import Index, Real, bare
from shoal.kernels.plan import CROSS_ENTROPY, ONE_VERSUS_ALL

_ZERO, _ONE, _TWO = np.float32(0), np.float32(1), np.float32(2)


@bare
def batch_loss(
    kind: Index, outputs: np.ndarray, heads: Index, stride: Index, labels: np.ndarray, targets: np.ndarray,
    rows: np.ndarray, slopes: np.ndarray, at: Index,
) -> float:  # fmt: skip
    """The mean loss over the samples `rows`; writes its gradients to `slopes`. Both arrays start at `at`."""
    total, share = 0.0, _ONE / np.float32(rows.size)
    for row in rows:
        if kind == CROSS_ENTROPY:
            total += _cross_entropy(outputs, heads, labels[row], share, slopes, at)
        elif kind == ONE_VERSUS_ALL:
            total += _one_versus_all(outputs, heads, labels[row], share, slopes, at)
        else:
            total += _squared_error(outputs, heads, targets[row], share, slopes, at)
        at += stride
    return total / rows.size


@bare
def _cross_entropy(
    outputs: np.ndarray, heads: Index, label: Index, share: Real, slopes: np.ndarray, at: Index
) -> float:
    top = outputs[at]
    for head in range(1, heads):
        top = max(top, outputs[at + head])
    total = _ZERO
    for head in range(heads):
        part = math.exp(outputs[at + head] - top)
        slopes[at + head] = part
        total += part
    own = np.float64(np.nan)  # stays nan for an invalid label, which as an index would be out of bounds
    for head in range(heads):
        slopes[at + head] *= share / total
        if head == label:
            own = np.float64(outputs[at + head])
            slopes[at + head] -= share
    return math.log(np.float64(total)) + (np.float64(top) - own)


@bare
def _one_versus_all(
    outputs: np.ndarray, heads: Index, label: Index, share: Real, slopes: np.ndarray, at: Index
) -> float:
    total = 0.0
    for head in range(heads):
        output = outputs[at + head]
        small = math.exp(-abs(output))  # at most 1, so nothing can overflow
        chance = (_ONE if output >= _ZERO else small) / (_ONE + small)
        total += np.float64(max(output, _ZERO)) + math.log1p(np.float64(small))
        if head == label:
            total -= np.float64(output)
            chance -= _ONE
        slopes[at + head] = chance * share
    return total


@bare
def _squared_error(
    outputs: np.ndarray, heads: Index, target: Real, share: Real, slopes: np.ndarray, at: Index
) -> float:
    total = 0.0
    for head in range(heads):
        gap = outputs[at + head] - target
        total += np.float64(gap) * np.float64(gap)
        slopes[at + head] = _TWO * gap * share
    return total
