"""Selecting the largest and the smallest of many numbers, and comparing two such choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, float64, int32, int64, types, uint64

from shoal.kernels.jit import Index, emitted, given, inner, kernel
from shoal.kernels.vectors import INDEX, spread, start

_DIGITS = ((20, 11), (9, 11), (0, 9))  # of the 31 bits of a non-negative float32: shift and length
_ALL = np.int32(0x7FFFFFFF)
_AT_ONCE = 32  # numbers that are examined together: usually none of them is small
_SAMPLE = 2048  # numbers from which an upper bound of the smallest is estimated


@kernel(types.void(given(float32, 1), given(float32, 1), given(int64, 2), float32[::1]))
def importance(change: np.ndarray, start: np.ndarray, ranges: np.ndarray, out: np.ndarray) -> None:
    """|change * (start + change)|, for the numbers in these ranges, concatenated."""
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
    """The key at index n in ascending order, and how many keys are smaller; found digit by digit."""
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
    """The largest of the `count` smallest keys, and how many keys are smaller."""
    below, within = 0, 0
    for p in range(keys.size):
        below += keys[p] < guess
        within += keys[p] <= guess
    if below < count <= within:  # as with many zeros
        return guess, below
    return _nth(keys, np.empty(keys.size, np.int32), count - 1, np.empty(2048, np.int64))


@emitted
def _hits(typing: Any, numbers: Any, at: Any, flip: Any, guess: Any) -> Any:
    """A bit mask of which of 32 keys are not above the guess; a key is a number with flipped bits."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        kind = ir.VectorType(ir.IntType(32), _AT_ONCE)
        place = builder.bitcast(start(context, builder, signature, args, 0), kind.as_pointer())
        flips, guesses = (spread(builder, value, _AT_ONCE) for value in args[2:])
        keys = builder.xor(builder.load(place, align=4), flips)
        hits = builder.icmp_signed("<=", keys, guesses)
        return builder.zext(builder.bitcast(hits, ir.IntType(_AT_ONCE)), INDEX)

    return types.int64(numbers, types.int64, types.int32, types.int32), emit


@emitted
def _lowest(typing: Any, bits: Any) -> Any:
    """The place of the lowest set bit; at least one must be set."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.int64(types.int64), emit


@kernel(types.void(given(int32, 1), int32, int32, int64[::1]))
def _smallest(numbers: np.ndarray, flip: int | np.int32, guess: int, places: np.ndarray) -> None:
    """The places of the smallest keys, as many as `places` has room for; a key is a number with flipped bits.
    If the guess is good, only a few keys are not above it, and the others are examined only once."""
    count, room = places.size, 4 * places.size
    few, where = np.empty(room + _AT_ONCE, np.int32), np.empty(room + _AT_ONCE, np.int64)
    found, whole = 0, numbers.size - numbers.size % _AT_ONCE
    for first in range(0, numbers.size, _AT_ONCE):
        if first < whole:
            hits = _hits(numbers, first, flip, guess)
        else:
            hits = np.int64(0)
            for p in range(first, numbers.size):
                hits |= np.int64((numbers[p] ^ flip) <= guess) << (p - first)
        while hits:
            p = first + _lowest(hits)
            few[found], where[found] = numbers[p] ^ flip, p
            found += 1
            hits &= hits - 1
        # too many candidates; or no key can be smaller, and these are the first of many zeros
        if found > room or (guess == 0 and found >= count):
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
    """[2, count] int64: the places of the largest and of the smallest of non-negative float32 numbers, each
    ascending; of equal numbers, the first are chosen."""
    if not 1 <= count <= len(values):
        raise ValueError(f"{count} of {len(values)} numbers cannot be chosen")
    places = np.empty((2, count), np.int64)
    small_first = values.view(np.int32)  # the bits have the same order as the numbers
    sample = np.sort(small_first[:: max(1, len(values) // _SAMPLE)])
    some = min(3 * count * len(sample) // (2 * len(values)) + 4, len(sample) - 1)
    _smallest(small_first, _ALL, sample[-1 - some] ^ _ALL, places[0])
    _smallest(small_first, 0, sample[some], places[1])
    return places


@kernel(types.void(given(int64, 2), uint64[:, ::1]))
def _mark(places: np.ndarray, marks: np.ndarray) -> None:
    """Set a bit for each place of each choice."""
    for c in range(len(places)):
        for place in places[c]:
            marks[c, place >> 6] |= np.uint64(1) << np.uint64(place & 63)


@inner
def _common(places: np.ndarray, values: np.ndarray, marks: np.ndarray, found: np.ndarray) -> Index:
    """Write the numbers at marked places, and return how many there are; without branches, which would be
    unpredictable."""
    count: Index = 0
    for p in range(places.size):
        place = places[p]
        found[count] = values[p]
        count += np.int64(marks[place >> 6] >> np.uint64(place & 63)) & 1
    return count


@inner
def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    sum_x, sum_y, varies_x, varies_y = 0.0, 0.0, False, False
    for p in range(x.size):
        sum_x, sum_y = sum_x + x[p], sum_y + y[p]
        varies_x |= x[p] != x[0]
        varies_y |= y[p] != y[0]
    if not (varies_x and varies_y):
        return 0.0
    mean_x, mean_y = sum_x / x.size, sum_y / x.size
    xx, xy, yy = 0.0, 0.0, 0.0
    for p in range(x.size):
        dx, dy = x[p] - mean_x, y[p] - mean_y
        xx, xy, yy = xx + dx * dx, xy + dx * dy, yy + dy * dy
    lengths = np.sqrt(xx) * np.sqrt(yy)
    return min(max(xy / lengths, -1.0), 1.0) if lengths > 0 else 0.0


_CHOICES = (given(int64, 2), given(float64, 2), given(uint64, 2))


@kernel(types.void(*_CHOICES, given(int64, 2), float64[:, ::1]))
def _compare(
    places: np.ndarray, values: np.ndarray, marks: np.ndarray, pairs: np.ndarray, out: np.ndarray
) -> None:
    """See `comparison`."""
    x, y = np.empty(places.shape[1]), np.empty(places.shape[1])
    for p in range(len(pairs)):
        i, j = pairs[p, 0], pairs[p, 1]
        common = _common(places[i], values[i], marks[j], x)
        _common(places[j], values[j], marks[i], y)
        out[p, 0], out[p, 1] = common, _correlation(x[:common], y[:common])


def comparison(places: np.ndarray, values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A function of pairs [n, 2] of choices. It returns [n, 2] float64: how many places two choices have in
    common, and Pearson's correlation of the numbers there, or 0 where it is undefined.

    A choice consists of places [k] int64, ascending, and the numbers [k] float64 at these places. Calls may
    run in parallel threads.
    """
    if places.shape != values.shape:
        raise ValueError(f"{values.shape} numbers at {places.shape} places")
    if places.min(initial=0) < 0:
        raise ValueError(f"no numbers at the place {places.min()}")
    marks = np.zeros((len(places), places.max(initial=0) // 64 + 1), np.uint64)
    _mark(places, marks)

    def compared(pairs: np.ndarray) -> np.ndarray:
        if pairs.shape[1:] != (2,):
            raise ValueError(f"pairs have two choices each, these are {pairs.shape}")
        if pairs.size and not 0 <= pairs.min() <= pairs.max() < len(places):
            raise ValueError(f"pairs of {len(places)} choices cannot be {pairs.min()} to {pairs.max()}")
        out = np.empty(pairs.shape)
        _compare(places, values, marks, pairs, out)
        return out

    return compared
