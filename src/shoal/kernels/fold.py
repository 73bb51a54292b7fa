"""Weighted sums over clients, and checks of the magnitude of numbers."""

from __future__ import annotations

import numpy as np
from numba import boolean, float32, float64, int64, types
from numpy.lib.stride_tricks import as_strided

from shoal.kernels.jit import given, kernel
from shoal.kernels.squares import SUMS, add_squares

_BLOCK = 4096  # sums processed together: 32 KiB stay in the cache while the rows stream past


@kernel(types.void(float64[::1], given(float32, 1), int64, given(float64, 1), int64, int64, boolean))
def _weighted_sum(
    acc: np.ndarray, rows: np.ndarray, apart: int, weights: np.ndarray, first: int, last: int, fresh: bool
) -> None:
    """See `weighted_sum`. Here the rows lie in one flat array, and start `apart` numbers from each other.

    Four rows are added at a time; otherwise most of the time goes into reading and writing the sums. Without
    fastmath, product and sum are rounded separately, so the grouping of rows does not change the bits.
    """
    n = len(weights)
    for begin in range(first, last, _BLOCK):
        end = min(begin + _BLOCK, last)
        total = acc[begin:end]
        if fresh:
            total[:] = 0.0
        for i in range(0, n - 3, 4):
            w0, w1, w2, w3 = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
            r0, r1 = rows[i * apart :][begin:end], rows[(i + 1) * apart :][begin:end]
            r2, r3 = rows[(i + 2) * apart :][begin:end], rows[(i + 3) * apart :][begin:end]
            for p in range(total.size):
                total[p] = (((total[p] + w0 * r0[p]) + w1 * r1[p]) + w2 * r2[p]) + w3 * r3[p]
        for i in range(n - n % 4, n):
            w0, r0 = weights[i], rows[i * apart :][begin:end]
            for p in range(total.size):
                total[p] += w0 * r0[p]


def weighted_sum(
    acc: np.ndarray,
    rows: np.ndarray,
    weights: np.ndarray,
    first: int = 0,
    last: int | None = None,
    *,
    fresh: bool = False,
) -> None:
    """acc[p] += weights[0]*rows[0, p], then += weights[1]*rows[1, p] and so on, for `first <= p < last`.

    acc [P] float64, rows [n, P] float32, weights [n] float64; each row is contiguous. With `fresh`, acc
    counts as 0, whatever it holds. The bits do not depend on how the rows are split over calls. Calls for
    disjoint ranges of p may run in parallel threads.
    """
    last = len(acc) if last is None else last
    _check_sum(acc, rows, weights, first, last)
    _weighted_sum(acc, *_in_one_line(rows), weights, first, last, fresh)


@kernel(
    types.void(
        float64[::1], given(float32, 1), int64, given(float32, 1), given(float32, 1), int64, int64, boolean
    )
)
def _control_sum(
    acc: np.ndarray, rows: np.ndarray, apart: int, paces: np.ndarray, common: np.ndarray, first: int,
    last: int, fresh: bool,
) -> None:  # fmt: skip
    """See `control_sum`. Otherwise as `_weighted_sum`."""
    n = len(paces)
    for begin in range(first, last, _BLOCK):
        end = min(begin + _BLOCK, last)
        total, c = acc[begin:end], common[begin:end]
        if fresh:
            total[:] = 0.0
        for i in range(0, n - 3, 4):
            k0, k1, k2, k3 = paces[i], paces[i + 1], paces[i + 2], paces[i + 3]
            r0, r1 = rows[i * apart :][begin:end], rows[(i + 1) * apart :][begin:end]
            r2, r3 = rows[(i + 2) * apart :][begin:end], rows[(i + 3) * apart :][begin:end]
            for p in range(total.size):
                d0, d1 = -(r0[p] * k0) - c[p], -(r1[p] * k1) - c[p]
                d2, d3 = -(r2[p] * k2) - c[p], -(r3[p] * k3) - c[p]
                total[p] = (((total[p] + d0) + d1) + d2) + d3
        for i in range(n - n % 4, n):
            k0, r0 = paces[i], rows[i * apart :][begin:end]
            for p in range(total.size):
                total[p] += -(r0[p] * k0) - c[p]


def control_sum(
    acc: np.ndarray,
    rows: np.ndarray,
    paces: np.ndarray,
    common: np.ndarray,
    *,
    fresh: bool = False,
) -> None:
    """acc[p] += -(rows[i, p] * paces[i]) - common[p] for each i in order: the terms in float32, the sum,
    acc [P], in float64. With `fresh`, acc counts as 0."""
    _check_sum(acc, rows, paces, 0, len(acc))
    if common.shape != acc.shape:
        raise ValueError(f"{common.shape} common numbers and {len(acc)} sums do not fit together")
    _control_sum(acc, *_in_one_line(rows), paces, common, 0, len(acc), fresh)


def _in_one_line(rows: np.ndarray) -> tuple[np.ndarray, int]:
    """All memory from the first row to the last, and how many numbers apart two successive rows start."""
    if rows.flags.c_contiguous or not rows.size:
        return rows.reshape(-1), rows.shape[1]
    apart, rest = divmod(rows.strides[0], rows.itemsize)
    if rows.strides[1] != rows.itemsize or rest or apart < rows.shape[1]:
        raise ValueError(f"rows must be contiguous, got strides {rows.strides}")
    return as_strided(rows[0], ((len(rows) - 1) * apart + rows.shape[1],), writeable=False), apart


def _check_sum(acc: np.ndarray, rows: np.ndarray, weights: np.ndarray, first: int, last: int) -> None:
    if rows.shape != (len(weights), len(acc)) or not 0 <= first <= last <= len(acc):
        raise ValueError(f"{rows.shape} rows, {len(weights)} weights and {len(acc)} sums do not fit together")


_PIECE = 256  # numbers of each row that are multiplied by the sum while they are in the nearest cache


@kernel(types.void(float64[::1], given(float32, 2), given(float64, 1), int64, int64, float64[::1]))
def _weighted_sum_along(
    acc: np.ndarray, rows: np.ndarray, weights: np.ndarray, first: int, last: int, along: np.ndarray
) -> None:
    """See `weighted_sum_along`. Each inner product has as many partial sums as a piece has numbers."""
    sums, flat = np.zeros((len(rows) + 1, _PIECE)), rows.reshape(-1)
    for begin in range(first, last, _PIECE):
        end = min(begin + _PIECE, last)
        _weighted_sum(acc, flat, rows.shape[1], weights, begin, end, False)
        total = acc[begin:end]
        for i in range(len(rows)):
            row, here = rows[i, begin:end], sums[i, : total.size]
            for p in range(total.size):
                here[p] += total[p] * row[p]
        here = sums[len(rows), : total.size]
        for p in range(total.size):
            here[p] += total[p] * total[p]
    for i in range(len(sums)):
        along[i] = sums[i].sum()


def weighted_sum_along(
    acc: np.ndarray, rows: np.ndarray, weights: np.ndarray, first: int, last: int
) -> np.ndarray:
    """As `weighted_sum`, between `first` and `last`. Returns the inner products of the completed sum with
    every row and, as the last one, with itself, which it computes in the same pass."""
    _check_sum(acc, rows, weights, first, last)
    along = np.empty(len(rows) + 1)
    _weighted_sum_along(acc, rows, weights, first, last, along)
    return along


_ROW = given(float32, 1)


@kernel(types.void(float64[::1], _ROW, _ROW, _ROW, _ROW, given(float64, 1)))
def add_four(
    acc: np.ndarray, r0: np.ndarray, r1: np.ndarray, r2: np.ndarray, r3: np.ndarray, weights: np.ndarray
) -> None:
    """As `weighted_sum` with four rows, which need not be adjacent here."""
    sizes = min(r0.size, r1.size, r2.size, r3.size), max(r0.size, r1.size, r2.size, r3.size)
    if sizes != (acc.size, acc.size) or weights.size != 4:
        raise ValueError("four rows, four weights and the sums do not fit together")
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    for p in range(acc.size):
        acc[p] = (((acc[p] + w0 * r0[p]) + w1 * r1[p]) + w2 * r2[p]) + w3 * r3[p]


@kernel(types.void(float64[::1], given(float32, 1), given(float32, 1), given(float32, 1), float64))
def add_offset(
    acc: np.ndarray, value: np.ndarray, sent: np.ndarray, update: np.ndarray, weight: float
) -> None:
    """acc[p] += weight * ((sent[p] - value[p]) + update[p]), in float64."""
    if value.size != acc.size or sent.size != acc.size or update.size != acc.size:
        raise ValueError("sums, values, sent ones and updates must be as many")
    for p in range(acc.size):
        acc[p] += weight * ((np.float64(sent[p]) - np.float64(value[p])) + np.float64(update[p]))


@kernel(float64(given(float32, 1)))
def sum_of_squares(values: np.ndarray) -> float:
    """The sum of the squares of all numbers, in float64."""
    sums = np.zeros(SUMS)
    add_squares(sums, values)
    return float(sums.sum())


@kernel(boolean(given(float32, 1), float32))
def all_within(values: np.ndarray, limit: float) -> bool:
    """Whether all numbers are finite, and none is larger than `limit` in absolute value."""
    strange = False
    for p in range(values.size):  # no early exit: it would prevent vectorisation
        strange |= not abs(values[p]) <= limit
    return not strange
