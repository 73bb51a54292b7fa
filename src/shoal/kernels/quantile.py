"""Weighted quantiles of a few numbers."""

from __future__ import annotations

import math

import numpy as np
from numba import float64

from shoal.kernels.jit import given, inner, kernel


@inner
def _ordered(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The places of values with a positive count, from the smallest to nan; equal ones keep their order."""
    order, size = np.empty(values.size, np.int64), 0
    for i in range(values.size):
        if counts[i] > 0:
            at = size
            while at > 0 and _smaller(values[i], values[order[at - 1]]):
                order[at] = order[at - 1]
                at -= 1
            order[at] = i
            size += 1
    return order[:size]


@inner
def _smaller(a: float, b: float) -> bool:
    return a < b or (not math.isnan(a) and math.isnan(b))


@inner
def _quantile(values: np.ndarray, counts: np.ndarray, level: float) -> float:
    """See `quantile`."""
    order = _ordered(values, counts)
    if not order.size:
        return 0.0
    total, passed, last, place = 0.0, 0.0, 0.0, 0.0
    before = after = order[0]
    for i in order:
        total += counts[i]
    for i in order:
        last, before, after = place, after, i
        passed += counts[i]
        place = (passed - counts[i] / 2) / total
        if place >= level:
            break
    gap = place - last if before != after else 0.0
    share = min(max((level - last) / gap, 0.0), 1.0) if gap > 0 else 1.0
    return values[before] + share * (values[after] - values[before])  # type: ignore[no-any-return]


@kernel(float64(given(float64, 1), given(float64, 1), float64))
def quantile(values: np.ndarray, counts: np.ndarray, level: float) -> float:
    """The quantile of values with these counts, with linear interpolation; 0 if there are none."""
    if values.size != counts.size:
        raise ValueError("every value needs a count")
    return _quantile(values, counts, level)


@kernel(float64[::1](given(float64, 2), given(float64, 2), float64))
def _quantiles(values: np.ndarray, counts: np.ndarray, level: float) -> np.ndarray:
    """See `quantiles`."""
    found = np.empty(len(values))
    for i in range(len(values)):
        found[i] = _quantile(values[i], counts[i % len(counts)], level)
    return found


def quantiles(values: np.ndarray, counts: np.ndarray, level: float) -> np.ndarray:
    """[...]: the quantile of each row of values [..., n]; their last dimensions are the shape of `counts`."""
    if values.shape[values.ndim - counts.ndim :] != counts.shape or not values.shape[-1]:
        raise ValueError(f"{counts.shape} counts do not fit {values.shape} values")
    rows, often = (np.ascontiguousarray(each.reshape(-1, values.shape[-1])) for each in (values, counts))
    found: np.ndarray = _quantiles(rows, often, level).reshape(values.shape[:-1])
    return found
