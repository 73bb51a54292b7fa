"""Packing codes of a few bits each into bytes, and rounding numbers to such codes while packing them.

Codes are stored with the highest bit first and without gaps, as in `np.packbits`. Numbers are rounded in
chunks that stay in the cache, so that memory is read once and written once.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float32, float64, int64, types, uint8, uint32, uint64

from shoal.kernels.fold import sum_of_squares
from shoal.kernels.jit import Flag, Index, Real, Word, given, inner, kernel
from shoal.kernels.philox_blocks import PER_BLOCK, fractions

MOST_BITS = 32  # of a code
CHUNK = 512  # numbers; a multiple of 32, so that a chunk of codes of any length ends with a whole word
HALF_STEP = np.float32(2.0**-17)  # half the distance between the multiples of 2^-16 that are drawn
_BYTE, _WORD, _ZERO = np.uint64(8), np.int64(32), np.uint64(0)
_LARGEST_TABLE = 8  # bits: the numbers of codes up to this length are looked up


@inner
def _put(codes: np.ndarray, count: Index, bits: Index, data: np.ndarray, at: Index) -> Index:
    """Write codes to `data` from byte `at` on, padded to whole bytes with zeros; returns where they end."""
    width, have, word = np.uint64(bits), np.int64(0), _ZERO
    for i in range(count):
        word = (word << width) | np.uint64(codes[i])
        have += bits
        if have >= _WORD:
            have -= _WORD
            four = np.uint32(word >> np.uint64(have))
            data[at] = np.uint8(four >> np.uint32(24))
            data[at + 1] = np.uint8(four >> np.uint32(16))
            data[at + 2] = np.uint8(four >> np.uint32(8))
            data[at + 3] = np.uint8(four)
            at += 4
    while have > 0:
        have -= 8
        data[at] = np.uint8(word >> np.uint64(have)) if have >= 0 else np.uint8(word << np.uint64(-have))
        at += 1
    return at


@inner
def _take(data: np.ndarray, at: Index, bits: Index, codes: np.ndarray, count: Index) -> Index:
    """The inverse of `_put`."""
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    have, word = np.int64(0), _ZERO
    for i in range(count):
        if have < bits:
            if at + 4 <= data.size:
                four = (np.uint32(data[at]) << np.uint32(24)) | (np.uint32(data[at + 1]) << np.uint32(16))
                four |= (np.uint32(data[at + 2]) << np.uint32(8)) | np.uint32(data[at + 3])
                word = (word << np.uint64(32)) | np.uint64(four)
                have += 32
                at += 4
            else:
                while have < bits:
                    word = (word << _BYTE) | np.uint64(data[at])
                    have += 8
                    at += 1
        have -= bits
        codes[i] = np.uint32((word >> np.uint64(have)) & mask)
    return at


@inner
def _check(count: Index, bits: Index, length: Index) -> None:
    if not 1 <= bits <= MOST_BITS or (count * bits + 7) // 8 != length:
        raise ValueError("the codes, their bits and the bytes do not fit together")


@kernel(types.void(given(uint32, 1), int64, uint8[::1]))
def pack(codes: np.ndarray, bits: int, data: np.ndarray) -> None:
    """Write n codes to the first ceil(n bits / 8) bytes, which must be all of `data`."""
    _check(codes.size, bits, data.size)
    _put(codes, codes.size, bits, data, np.int64(0))


@kernel(types.void(given(uint8, 1), int64, uint32[::1]))
def unpack(data: np.ndarray, bits: int, codes: np.ndarray) -> None:
    """The inverse of `pack`."""
    _check(codes.size, bits, data.size)
    _take(data, np.int64(0), bits, codes, codes.size)


@inner
def _draw(key: tuple[Word, Word], first: Index, random: Flag, noise: np.ndarray) -> None:
    """Draw what is added to a chunk's numbers before they are truncated to integers; otherwise it is 1/2."""
    if random:
        fractions(key, first // PER_BLOCK, _ZERO, _ZERO, noise)
        for i in range(noise.size):
            noise[i] += HALF_STEP


@kernel(types.void(given(float32, 1), float64, float64, int64, boolean, uint64, uint64, uint8[::1]))
def pack_affine(
    x: np.ndarray, low: float, high: float, bits: int, random: bool, key0: Word, key1: Word, data: np.ndarray
) -> None:
    """Codes of b bits: 0 is `low`, 2^b - 1 is `high`. Rounds to the nearest code, or to a random neighbour.

    With `low = high` all codes are 0. Numbers outside low ... high must not occur.
    """
    _check(x.size, bits, data.size)
    rate = (2.0**bits - 1.0) / (high - low) if high > low else 0.0
    codes, noise = np.empty(CHUNK, np.uint32), np.full(CHUNK, np.float32(0.5))
    at: Index = np.int64(0)
    for first in range(0, x.size, CHUNK):
        part = x[first : first + CHUNK]
        _draw((key0, key1), first, random, noise)
        for i in range(part.size):
            codes[i] = np.uint32(np.int32((np.float64(part[i]) - low) * rate + np.float64(noise[i])))
        at = _put(codes, part.size, bits, data, at)


@kernel(types.void(given(uint8, 1), float64, float64, int64, float32[::1]))
def unpack_affine(data: np.ndarray, low: float, high: float, bits: int, y: np.ndarray) -> None:
    """The numbers that the codes of `pack_affine` stand for."""
    _check(y.size, bits, data.size)
    step = (high - low) / (2.0**bits - 1.0)
    at: Index = np.int64(0)
    codes, short = np.empty(CHUNK, np.uint32), bits <= _LARGEST_TABLE
    table = np.empty(2**bits if short else 0, np.float32)
    for i in range(table.size):
        table[i] = np.float32(low + i * step)
    for first in range(0, y.size, CHUNK):
        part = y[first : first + CHUNK]
        at = _take(data, at, bits, codes, part.size)
        if short:
            for i in range(part.size):
                part[i] = table[codes[i]]
        else:
            for i in range(part.size):
                part[i] = np.float32(low + np.float64(codes[i]) * step)


@inner
def _levels(x: np.ndarray, noise: np.ndarray, rate: Real, most: Real, codes: np.ndarray) -> None:
    if rate == 0.0:  # zeros, or numbers that are not finite and must not become integers
        for i in range(x.size):
            codes[i] = np.uint32(0)
        return
    sign = np.uint32(most) + np.uint32(1)
    for i in range(x.size):
        level = np.uint32(np.int32(min(np.abs(np.float64(x[i])) * rate + np.float64(noise[i]), most)))
        codes[i] = level | (sign if x[i] < 0 else np.uint32(0))


@kernel(types.void(given(float32, 1), int64, int64, uint64, uint64, float32[::1], uint8[::1]))
def pack_buckets(
    x: np.ndarray, bucket: int, bits: int, key0: Word, key1: Word, norms: np.ndarray, data: np.ndarray
) -> None:
    """A sign bit and a random level for each number: on average, level / (2^(b - 1) - 1) is |x| / norm.

    The norm is that of the number's bucket; a norm that is not finite becomes nan.
    """
    _check(x.size, bits, data.size)
    if bucket < 1 or norms.size != (x.size + bucket - 1) // bucket or bits < 2:
        raise ValueError("the buckets and their norms do not fit together")
    for j in range(norms.size):
        norm = np.float32(np.sqrt(sum_of_squares(x[j * bucket : (j + 1) * bucket])))
        norms[j] = norm if norm < np.inf else np.nan
    codes, noise = np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.float32)
    at: Index = np.int64(0)
    most = 2.0 ** (bits - 1) - 1.0
    for first in range(0, x.size, CHUNK):
        part = x[first : first + CHUNK]
        _draw((key0, key1), first, True, noise)
        i = 0
        while i < part.size:
            j = (first + i) // bucket
            end = min(part.size, (j + 1) * bucket - first)
            rate = most / np.float64(norms[j]) if norms[j] > 0 else 0.0
            _levels(part[i:end], noise[i:end], rate, most, codes[i:end])
            i = end
        at = _put(codes, part.size, bits, data, at)


@kernel(types.void(given(uint8, 1), int64, int64, given(float32, 1), float32[::1]))
def unpack_buckets(data: np.ndarray, bucket: int, bits: int, norms: np.ndarray, y: np.ndarray) -> None:
    """The numbers that the codes of `pack_buckets` stand for."""
    _check(y.size, bits, data.size)
    if bucket < 1 or norms.size != (y.size + bucket - 1) // bucket or bits < 2:
        raise ValueError("the buckets and their norms do not fit together")
    at: Index = np.int64(0)
    codes, sign = np.empty(CHUNK, np.uint32), np.uint32(1) << np.uint32(bits - 1)
    for first in range(0, y.size, CHUNK):
        part = y[first : first + CHUNK]
        at = _take(data, at, bits, codes, part.size)
        i = 0
        while i < part.size:
            j = (first + i) // bucket
            end, step = (
                min(part.size, (j + 1) * bucket - first),
                np.float64(norms[j]) / (np.float64(sign) - 1),
            )
            for p in range(i, end):
                level = np.float64(codes[p] & (sign - np.uint32(1))) * step
                part[p] = np.float32(-level if codes[p] & sign else level)
            i = end


@inner
def _from_above(bins: np.ndarray, count: Index) -> tuple[Index, Index]:
    """The bin that holds the `count`-th number from above, and how many of its numbers are needed."""
    at = bins.size - 1
    while bins[at] < count:
        count -= bins[at]
        at -= 1
    return at, count


@kernel(int64[::1](given(float32, 1), int64))
def largest(x: np.ndarray, count: int) -> np.ndarray:
    """The places of the numbers of largest absolute value, ascending; ties go to the first; nan is large.

    Without their signs, floating-point numbers have the order of their bits. So the smallest number taken is
    found by its upper half among all numbers, and then by its lower half among those with this upper half.
    """
    if not 0 <= count <= x.size:
        raise ValueError("there are not so many numbers")
    places, found = np.empty(count, np.int64), 0
    if count == 0:
        return places
    bits, sign, half = x.view(np.uint32), np.uint32(0x7FFFFFFF), np.uint32(16)
    bins = np.zeros(2**15, np.int64)
    for i in range(bits.size):
        bins[(bits[i] & sign) >> half] += 1
    top, left = _from_above(bins, count)
    bins = np.zeros(2**16, np.int64)
    for i in range(bits.size):
        if (bits[i] & sign) >> half == top:
            bins[bits[i] & np.uint32(0xFFFF)] += 1
    low, equal = _from_above(bins, left)
    least = (np.uint32(top) << half) | np.uint32(low)
    for i in range(bits.size):
        value = bits[i] & sign
        if value >= least:
            if value == least:
                if equal == 0:
                    continue
                equal -= 1
            places[found] = i
            found += 1
    return places
