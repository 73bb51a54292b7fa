"""Weighted sums over clients, and checks of the size of numbers."""

from __future__ import annotations

import numpy as np
from numba import boolean, float32, float64, int64, types

from shoal.kernels.jit import given, kernel

_BLOCK = 32768  # sums processed together: 64 KiB stay in the cache while the rows stream past


@kernel(types.void(float64[::1], given(float32, 2), given(float64, 1), int64, int64))
def _weighted_sum(acc: np.ndarray, rows: np.ndarray, weights: np.ndarray, first: int, last: int) -> None:
    """See `weighted_sum`.

    Four rows at a time, because otherwise most of the time goes into reading and writing the sums. Without
    fastmath, product and sum are rounded separately, so the grouping of rows does not change the bits.
    """
    n = len(rows)
    for begin in range(first, last, _BLOCK):
        end = min(begin + _BLOCK, last)
        total = acc[begin:end]
        for i in range(0, n - 3, 4):
            w0, w1, w2, w3 = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
            r0, r1 = rows[i, begin:end], rows[i + 1, begin:end]
            r2, r3 = rows[i + 2, begin:end], rows[i + 3, begin:end]
            for p in range(total.size):
                total[p] = (((total[p] + w0 * r0[p]) + w1 * r1[p]) + w2 * r2[p]) + w3 * r3[p]
        for i in range(n - n % 4, n):
            w0, r0 = weights[i], rows[i, begin:end]
            for p in range(total.size):
                total[p] += w0 * r0[p]


def weighted_sum(
    acc: np.ndarray, rows: np.ndarray, weights: np.ndarray, first: int = 0, last: int | None = None
) -> None:
    """acc[p] += weights[0]*rows[0, p], then += weights[1]*rows[1, p] and so on, for `first <= p < last`.

    acc [P] float64, rows [n, P] float32, weights [n] float64. The bits do not depend on how the rows are
    split over calls. Calls for disjoint ranges of p may run in parallel threads.
    """
    last = len(acc) if last is None else last
    if rows.shape != (len(weights), len(acc)) or not 0 <= first <= last <= len(acc):
        raise ValueError(f"{rows.shape} rows, {len(weights)} weights and {len(acc)} sums do not fit together")
    _weighted_sum(acc, rows, weights, first, last)


@kernel(types.void(float64[::1], given(float32, 1), given(float32, 1), given(float32, 1), float64))
def add_offset(
    acc: np.ndarray, value: np.ndarray, sent: np.ndarray, update: np.ndarray, weight: float
) -> None:
    """acc[p] += weight * ((sent[p] - value[p]) + update[p]), in float64."""
    if value.size != acc.size or sent.size != acc.size or update.size != acc.size:
        raise ValueError("sums, values, sent ones and updates must be as many")
    for p in range(acc.size):
        acc[p] += weight * ((np.float64(sent[p]) - np.float64(value[p])) + np.float64(update[p]))


@kernel(boolean(given(float32, 1), float32))
def all_within(values: np.ndarray, limit: float) -> bool:
    """Whether all numbers are finite, and none is larger than `limit` in absolute value."""
    strange = False
    for p in range(values.size):  # no early exit: it would prevent vectorisation
        strange |= not abs(values[p]) <= limit
    return not strange
