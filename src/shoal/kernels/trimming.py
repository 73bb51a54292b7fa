"""Trimmed means: means of columns without their extremes.

A sorting network compares the same places in every column, so its comparisons are minima and maxima of whole
rows of a block of columns, which the compiler vectorises. It does not do so if several such loops are in one
function, which takes thirteen times as long. Floats are compared as integers of the same order: -0 counts as
0, and nan comes last.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numba import float32, float64, int64, types

from shoal.kernels.jit import apart, bare, given, inner, kernel

_BLOCK = 128  # columns that are sorted together: they stay in the cache
_LOW = np.int32(0x7FFFFFFF)  # all bits but the sign bit


@lru_cache(maxsize=64)
def network(n: int) -> np.ndarray:
    """[comparisons, 2] int64: Batcher's merge exchange (Knuth, 5.2.2, algorithm M), for n numbers."""
    pairs = []
    top = 1 << max(n - 1, 1).bit_length() - 1
    p = top
    while p:
        q, r, d = top, 0, p
        while True:
            pairs += [(i, i + d) for i in range(n - d) if i & p == r]
            if q == p:
                break
            d, q, r = q - p, q >> 1, p
        p >>= 1
    return np.array(pairs, np.int64).reshape(-1, 2)


@inner
def _flipped(bits: np.int32) -> np.int32:
    """A float's bits as an integer of the same order, and back."""
    return np.int32(bits ^ np.int32(np.int32(bits >> np.int32(31)) & _LOW))


@bare
def _take(rows: np.ndarray, first: int, count: int, keys: np.ndarray, ordered: np.ndarray) -> None:
    """Write the columns from `first` on, as keys, to both `keys` and `ordered`."""
    apart()
    for i in range(len(rows)):
        source, target, copy = rows[i, first : first + count], keys[i], ordered[i]
        for p in range(count):
            bits = np.float32(source[p] + np.float32(0)).view(np.int32)
            target[p] = copy[p] = _flipped(bits) if source[p] == source[p] else _LOW


@bare
def _sort(keys: np.ndarray, comparisons: np.ndarray) -> None:
    """Sort every column in ascending order."""
    apart()
    for c in range(len(comparisons)):
        low, high = keys[comparisons[c, 0]], keys[comparisons[c, 1]]
        for p in range(_BLOCK):
            a, b = low[p], high[p]
            low[p], high[p] = min(a, b), max(a, b)


@bare
def _average(ordered: np.ndarray, trim: int, means: np.ndarray, floats: np.ndarray) -> None:
    """The means of columns of keys, summed in float64 from the smallest number to the largest."""
    apart()
    n, bits = len(ordered), floats.view(np.int32)
    for i in range(trim, n - trim):
        row = ordered[i]
        for p in range(means.size):
            bits[p] = _flipped(row[p])
        for p in range(means.size):
            means[p] = floats[p] if i == trim else means[p] + floats[p]
    for p in range(means.size):
        means[p] /= n - 2 * trim


@bare
def _count(keys: np.ndarray, ordered: np.ndarray, trim: int, clear: np.ndarray, counts: np.ndarray) -> None:
    """Count how often each row is kept, in the columns in which it is clear which rows are."""
    apart()
    n = len(keys)
    low, high = ordered[trim], ordered[n - trim - 1]
    for p in range(clear.size):
        clear[p] = np.int32(1)
    if trim:
        below, above = ordered[trim - 1], ordered[n - trim]
        for p in range(clear.size):
            clear[p] = np.int32((below[p] != low[p]) & (above[p] != high[p]))
    for i in range(n):
        row, count = keys[i], counts[i]
        for p in range(clear.size):
            count[p] += clear[p] if low[p] <= row[p] <= high[p] else np.int32(0)


@bare
def _share(keys: np.ndarray, ordered: np.ndarray, trim: int, clear: np.ndarray, kept: np.ndarray) -> int:
    """Add the rows' shares in the other columns; returns in how many of these columns all rows are equal."""
    apart()
    n, alike = len(keys), 0
    for p in range(clear.size):
        if clear[p]:
            continue
        low, high = ordered[trim, p], ordered[n - trim - 1, p]
        if ordered[0, p] == ordered[n - 1, p]:
            alike += 1
            continue
        inside = 0
        for i in range(n):
            inside += low <= keys[i, p] <= high
        for i in range(n):
            if low <= keys[i, p] <= high:
                kept[i] += 1 / inside
    return alike


@kernel(types.void(given(float32, 2), int64, given(int64, 2), int64, int64, float64[::1], float64[::1]))
def _trimmed(
    rows: np.ndarray,
    trim: int,
    comparisons: np.ndarray,
    first: int,
    last: int,
    means: np.ndarray,
    kept: np.ndarray,
) -> None:
    """See `trim_between`."""
    n = len(rows)
    keys, ordered = np.zeros((n, _BLOCK), np.int32), np.zeros((n, _BLOCK), np.int32)
    counts, clear = np.zeros((n, _BLOCK), np.int32), np.empty(_BLOCK, np.int32)
    floats, alike = np.empty(_BLOCK, np.float32), 0
    for begin in range(first, last, _BLOCK):
        count = min(_BLOCK, last - begin)
        _take(rows, begin, count, keys, ordered)
        _sort(ordered, comparisons)
        _average(ordered, trim, means[begin : begin + count], floats)
        _count(keys, ordered, trim, clear[:count], counts)
        alike += _share(keys, ordered, trim, clear[:count], kept)
    for i in range(n):
        total = 0
        for p in range(_BLOCK):
            total += counts[i, p]
        kept[i] += total / (n - 2 * trim) + alike / n


def trim_between(rows: np.ndarray, trim: int, means: np.ndarray, first: int, last: int) -> np.ndarray:
    """As `trimmed`, for the columns from `first` to `last`: their means go into `means` [columns].

    Returns in how many of these columns each row was kept, [n]. Calls for other columns may run in parallel
    threads.
    """
    n, width = rows.shape
    if not 0 <= 2 * trim < n:
        raise ValueError(f"{trim} of {n} numbers cannot be dropped on each side")
    if means.size != width or not 0 <= first <= last <= width:
        raise ValueError(f"{means.size} means of columns {first} to {last} of {width}")
    kept = np.zeros(n)
    _trimmed(rows, trim, network(n), first, last, means, kept)
    return kept


def trimmed(rows: np.ndarray, trim: int) -> tuple[np.ndarray, np.ndarray]:
    """Means [columns] float64 of rows [n, columns] float32 without the `trim` smallest and largest numbers of
    each column, and the share [n] of the columns in which each row was kept. Rows that are equal to the first
    or the last one kept share its place."""
    means = np.empty(rows.shape[1])
    kept = trim_between(rows, trim, means, 0, means.size)
    return means, kept / means.size
