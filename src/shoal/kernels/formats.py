"""Rounding to number formats of fewer bits: to the nearest number of the format, or to a random neighbour.

A format with m bits after the point has, between 2^e and 2^(e + 1), the multiples of 2^(e - m); below its
smallest normal number the spacing stays as it is there. Results larger than the format's largest number
become that number, and inf and nan stay. The random number drawn for a parameter depends only on the key, the
step, the purpose, and the parameter's place in the model, so everyone who rounds it gets the same result.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numba import float32, int64, types, uint64

from shoal.kernels.jit import Index, Real, Word, bare, inner, kernel
from shoal.kernels.philox_blocks import PER_BLOCK, fractions

WEIGHTS, MOMENTUM, TRANSFER = np.uint64(3), np.uint64(4), np.uint64(5)  # purposes; others use 0 to 2
_CHUNK = 512  # numbers
_EXPONENT, _FRACTION = np.uint32(255), np.uint32(23)
_HALF_STEP, _ONE, _ZERO, _INF = np.float32(2.0**-17), np.float32(1), np.float32(0), np.float32(np.inf)


class NumberFormat(NamedTuple):
    """A floating-point format, as a part of float32."""

    digits: Index  # bits after the point; 0: float32 itself
    least: Index  # the exponent of the smallest normal number, plus 127
    largest: Real  # finite number


FormatName = Literal["float32", "bfloat16", "float16", "e5m2"]

FORMATS: dict[FormatName, NumberFormat] = {
    "float32": NumberFormat(np.int64(0), np.int64(1), np.float32(np.finfo(np.float32).max)),
    # below 2^-119, multiples of 2^-126, whereas bfloat16 itself goes on to 2^-133
    "bfloat16": NumberFormat(np.int64(7), np.int64(8), np.float32(2.0**127 * (2 - 2.0**-7))),
    "float16": NumberFormat(np.int64(10), np.int64(113), np.float32(65504)),
    "e5m2": NumberFormat(np.int64(2), np.int64(113), np.float32(57344)),
}


@inner
def _units(x: np.ndarray, form: NumberFormat, unit: np.ndarray, inverse: np.ndarray) -> None:
    """The distance between neighbours in the format at each number, and its inverse."""
    bits, units, inverses = x.view(np.uint32), unit.view(np.uint32), inverse.view(np.uint32)
    least, digits = np.uint32(form.least), np.uint32(form.digits)
    for i in range(x.size):
        exponent = max((bits[i] >> _FRACTION) & _EXPONENT, least) - digits
        units[i] = exponent << _FRACTION
        inverses[i] = (np.uint32(254) - exponent) << _FRACTION


@inner
def to_nearest(x: np.ndarray, form: NumberFormat, unit: np.ndarray, inverse: np.ndarray) -> None:
    """Round to the nearest number of the format, in place; ties go to the even one.

    `unit` and `inverse` are scratch space, at least as long as x.
    """
    _units(x, form, unit, inverse)
    for i in range(x.size):
        value = np.rint(x[i] * inverse[i]) * unit[i]
        value = min(max(value, -form.largest), form.largest)
        x[i] = value if abs(x[i]) < _INF else x[i]


@inner
def to_either(
    x: np.ndarray, form: NumberFormat, noise: np.ndarray, unit: np.ndarray, inverse: np.ndarray
) -> None:
    """Round at random to one of the two nearest numbers of the format, in place; the average is x.

    `noise` holds multiples of 2^-16 in [0, 1).
    """
    _units(x, form, unit, inverse)
    for i in range(x.size):
        ratio = x[i] * inverse[i]
        below = np.floor(ratio)
        up = _ONE if (ratio - below) + (noise[i] + _HALF_STEP) >= _ONE else _ZERO
        value = (below + up) * unit[i]
        value = min(max(value, -form.largest), form.largest)
        x[i] = value if abs(x[i]) < _INF else x[i]


@bare
def draw_for(
    key: tuple[Word, Word], step: Index, purpose: Word, first: Index, count: Index, noise: np.ndarray
) -> Index:
    """Draw the random numbers for `count` parameters, from the one at `first` on, into `noise`.

    `noise` must have space for 2 x 16 more. Returns where in it the numbers begin.
    """
    skip = first % PER_BLOCK
    blocks = (skip + count + PER_BLOCK - 1) // PER_BLOCK
    fractions(key, first // PER_BLOCK, np.uint64(step), purpose, noise[: blocks * PER_BLOCK])
    return skip


@inner
def _scratch() -> np.ndarray:
    return np.empty(_CHUNK + 2 * PER_BLOCK, np.float32)


_FORM = (int64, int64, float32)


@kernel(types.void(float32[::1], *_FORM))
def round_nearest(x: np.ndarray, digits: Index, least: Index, largest: Real) -> None:
    """`to_nearest`, for a whole vector."""
    form, unit, inverse = NumberFormat(digits, least, largest), _scratch(), _scratch()
    for first in range(0, x.size, _CHUNK):
        to_nearest(x[first : first + _CHUNK], form, unit, inverse)


@kernel(types.void(float32[::1], *_FORM, uint64, uint64, int64, uint64, int64))
def round_either(
    x: np.ndarray, digits: Index, least: Index, largest: Real, key0: Word, key1: Word, step: Index,
    purpose: Word, first: Index,
) -> None:  # fmt: skip
    """`to_either`, for a vector of parameters that begins with the one at `first`."""
    form, unit, inverse, noise = NumberFormat(digits, least, largest), _scratch(), _scratch(), _scratch()
    for start in range(0, x.size, _CHUNK):
        part = x[start : start + _CHUNK]
        skip = draw_for((key0, key1), step, purpose, first + start, part.size, noise)
        to_either(part, form, noise[skip : skip + part.size], unit, inverse)
