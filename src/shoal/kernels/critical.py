"""The largest and the smallest of many numbers, and how two such choices compare."""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int32, int64, types

from shoal.kernels.jit import Index, given, inner, kernel

_DIGITS = ((20, 11), (9, 11), (0, 9))  # of the 31 bits of a float32 that is not negative: shift and length
_ALL = np.int32(0x7FFFFFFF)
_AT_ONCE = 32  # numbers that are looked at together: most often, none of them is small
_SAMPLE = 2048  # numbers from which a bound of the smallest is guessed


@kernel(types.void(given(float32, 1), given(float32, 1), given(int64, 2), float32[::1]))
def importance(change: np.ndarray, start: np.ndarray, ranges: np.ndarray, out: np.ndarray) -> None:
    """|change * (start + change)|, of the numbers in these ranges, one after another."""
    at = 0
    for r in range(len(ranges)):
        first, last = ranges[r, 0], ranges[r, 1]
        moved, begun = change[first:last], start[first:last]
        found = out[at : at + moved.size]
        for p in range(found.size):
            found[p] = abs(moved[p] * (begun[p] + moved[p]))
        at += moved.size


@inner
def _nth(keys: np.ndarray, rest: np.ndarray, n: Index, counts: np.ndarray) -> tuple[Index, Index]:
    """The key that n keys come before in ascending order, and how many are smaller; digit by digit."""
    smaller, size, held = 0, keys.size, keys
    found = 0
    for shift, length in _DIGITS:
        last = (1 << length) - 1
        for digit in range(last + 1):
            counts[digit] = 0
        for p in range(size):
            counts[(held[p] >> shift) & last] += 1
        digit = 0
        while smaller + counts[digit] <= n:
            smaller += counts[digit]
            digit += 1
        kept = 0
        for p in range(size):
            key = held[p]
            rest[kept] = key
            kept += ((key >> shift) & last) == digit
        size, held = kept, rest
        found |= digit << shift
    return found, smaller


@inner
def _bound(keys: np.ndarray, guess: int, count: int) -> tuple[Index, Index]:
    """The largest of the `count` smallest keys, and how many are smaller."""
    below, within = 0, 0
    for p in range(keys.size):
        below += keys[p] < guess
        within += keys[p] <= guess
    if below < count <= within:  # as with many zeros
        return guess, below
    return _nth(keys, np.empty(keys.size, np.int32), count - 1, np.empty(2048, np.int64))


@kernel(types.void(given(int32, 1), int32, int32, int64[::1]))
def _smallest(numbers: np.ndarray, flip: int | np.int32, guess: int, places: np.ndarray) -> None:
    """The places of the smallest keys, as many as there is room for; a key is a number with flipped bits.
    Few are not above the guess, if it is good, and the others are only looked at once."""
    count, room = places.size, 4 * places.size
    few, where = np.empty(room, np.int32), np.empty(room, np.int64)
    found = 0
    for first in range(0, numbers.size, _AT_ONCE):
        some = numbers[first : first + _AT_ONCE]
        hits = 0
        for p in range(some.size):
            hits += (some[p] ^ flip) <= guess
        if not hits:
            continue
        if found + hits > room:
            found = room + 1
            break
        for p in range(some.size):
            key = some[p] ^ flip
            if key <= guess:
                few[found], where[found] = key, first + p
                found += 1
        if guess == 0 and found >= count:  # no key is smaller: these are the first of many zeros
            break
    near = count <= found <= room
    held = few[:found] if near else numbers ^ np.int32(flip)
    bound, below = _bound(held, guess, count)
    ties, filled = count - below, 0
    for p in range(held.size):
        if held[p] < bound or (held[p] == bound and ties > 0):
            ties -= held[p] == bound
            places[filled] = where[p] if near else p
            filled += 1
            if filled == count:
                break


def extremes(values: np.ndarray, count: int) -> np.ndarray:
    """[2, count] int64: the places of the largest and of the smallest of float32 numbers that are not
    negative, each ascending; of equal numbers the first."""
    if not 1 <= count <= len(values):
        raise ValueError(f"{count} of {len(values)} numbers cannot be chosen")
    places = np.empty((2, count), np.int64)
    small_first = values.view(np.int32)  # the bits have the order of the numbers
    sample = np.sort(small_first[:: max(1, len(values) // _SAMPLE)])
    some = min(2 * count * len(sample) // len(values) + 4, len(sample) - 1)
    _smallest(small_first, _ALL, sample[-1 - some] ^ _ALL, places[0])
    _smallest(small_first, 0, sample[some], places[1])
    return places


@inner
def _compared(
    places: np.ndarray, values: np.ndarray, other_places: np.ndarray, other_values: np.ndarray
) -> tuple[float, float]:
    """See `compared`, for one pair."""
    most = min(places.size, other_places.size) + 1
    x, y = np.empty(most), np.empty(most)
    common, i, j = 0, 0, 0
    while i < places.size and j < other_places.size:  # without branches: which is next cannot be foreseen
        a, b = places[i], other_places[j]
        x[common], y[common] = values[i], other_values[j]
        common += a == b
        i, j = i + (a <= b), j + (b <= a)
    sum_x, sum_y, varies_x, varies_y = 0.0, 0.0, False, False
    for p in range(common):
        sum_x, sum_y = sum_x + x[p], sum_y + y[p]
        varies_x |= x[p] != x[0]
        varies_y |= y[p] != y[0]
    if not (varies_x and varies_y):
        return float(common), 0.0
    mean_x, mean_y = sum_x / common, sum_y / common
    xx, xy, yy = 0.0, 0.0, 0.0
    for p in range(common):
        dx, dy = x[p] - mean_x, y[p] - mean_y
        xx, xy, yy = xx + dx * dx, xy + dx * dy, yy + dy * dy
    lengths = np.sqrt(xx) * np.sqrt(yy)
    return float(common), min(max(xy / lengths, -1.0), 1.0) if lengths > 0 else 0.0


_CHOICES = (given(int64, 2), given(float64, 2))


@kernel(types.void(*_CHOICES, given(int64, 2), float64[:, ::1]))
def _compare(places: np.ndarray, values: np.ndarray, pairs: np.ndarray, out: np.ndarray) -> None:
    """See `compared`."""
    for p in range(len(pairs)):
        i, j = pairs[p, 0], pairs[p, 1]
        out[p, 0], out[p, 1] = _compared(places[i], values[i], places[j], values[j])


def compared(places: np.ndarray, values: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """[pairs, 2] float64: how many places two choices have in common; and Pearson's correlation of the
    numbers there, or 0 where there is none.

    A choice is places [k] int64, ascending, and the numbers [k] float64 there; `pairs` says which to compare.
    """
    if places.shape != values.shape or pairs.shape[1:] != (2,):
        raise ValueError(f"{values.shape} numbers at {places.shape} places, and {pairs.shape} pairs")
    if pairs.size and not 0 <= pairs.min() <= pairs.max() < len(places):
        raise ValueError(f"pairs of {len(places)} choices cannot be {pairs.min()} to {pairs.max()}")
    out = np.empty(pairs.shape)
    _compare(places, values, pairs, out)
    return out
