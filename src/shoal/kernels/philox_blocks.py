"""The blocks of NumPy's Philox4x64-10, for kernels; the functions that Python calls are in `philox`.

A key is two 64-bit words. Its stream is that of NumPy's Philox with these words as its key.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types, uint64

from shoal.kernels.jit import Index, Word, bare, emitted, inner

# the last word of the counter, which is 0 in the stream of the key itself
FOLD_INT, FOLD_TEXT = np.uint64(1), np.uint64(2)

PER_BLOCK = 16  # numbers that `fractions` draws from a block

PAIR = types.UniTuple(uint64, 2)  # type: ignore[no-untyped-call]

_MULTIPLIERS = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_WEYL = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_ZERO, _ONE, _QUARTER = np.uint64(0), np.uint64(1), np.uint64(0xFFFF)
_STEP = np.float32(2.0**-16)
_REST, _FINE = np.uint64(11), 2.0**-53


@emitted
def product(typing: Any, a: Any, b: Any) -> Any:
    """The 128-bit product, as two words: low, high."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        long = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], long), builder.zext(args[1], long))
        low = builder.trunc(product, ir.IntType(64))
        high = builder.trunc(builder.lshr(product, long(64)), ir.IntType(64))
        return context.make_tuple(builder, signature.return_type, (low, high))

    return PAIR(uint64, uint64), emit


@bare
def block_of(key: tuple[Word, Word], c0: Word, c1: Word, c3: Word) -> tuple[Word, Word, Word, Word]:
    """Four numbers from the counter (c0, c1, 0, c3)."""
    (k0, k1), c2 = key, _ZERO
    for _ in range(10):
        low0, high0 = product(_MULTIPLIERS[0], c0)
        low1, high1 = product(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 += _WEYL[0]
        k1 += _WEYL[1]
    return c0, c1, c2, c3


@bare
def fold(first: Word, second: Word, value: Word, kind: Word) -> tuple[Word, Word]:
    """The words of the key that results from folding `value` into the key (first, second)."""
    c0 = value + _ONE  # NumPy increments the counter before the first block, with carry
    c1 = _ONE if c0 == _ZERO else _ZERO
    word0, word1, _, _ = block_of((first, second), c0, c1, kind)
    return word0, word1


@bare
def fractions(key: tuple[Word, Word], block: Index, c1: Word, c3: Word, numbers: np.ndarray) -> None:
    """Fill an array with multiples of 2^-16 in [0, 1), four from each word, starting at a block of the key.

    Its size is a multiple of 16. `c1` and `c3` are words of the counter, which are 0 in the key's own stream.
    """
    for first in range(0, numbers.size, PER_BLOCK):
        block += 1
        a, b, c, d = block_of(key, np.uint64(block), c1, c3)
        for j in range(4):
            shift = np.uint64(16 * j)
            at = first + j
            numbers[at] = np.float32((a >> shift) & _QUARTER) * _STEP
            numbers[at + 4] = np.float32((b >> shift) & _QUARTER) * _STEP
            numbers[at + 8] = np.float32((c >> shift) & _QUARTER) * _STEP
            numbers[at + 12] = np.float32((d >> shift) & _QUARTER) * _STEP


@inner
def reals(key: tuple[Word, Word], block: Index, numbers: np.ndarray) -> None:
    """Fill an array with multiples of 2^-53 in [0, 1) from the key's stream, starting at a block of four."""
    whole = numbers.size - numbers.size % 4
    for at in range(0, whole, 4):
        block += 1
        a, b, c, d = block_of(key, np.uint64(block), _ZERO, _ZERO)
        numbers[at], numbers[at + 1] = (a >> _REST) * _FINE, (b >> _REST) * _FINE
        numbers[at + 2], numbers[at + 3] = (c >> _REST) * _FINE, (d >> _REST) * _FINE
    if whole < numbers.size:
        last = block_of(key, np.uint64(block + 1), _ZERO, _ZERO)
        for at in range(whole, numbers.size):
            numbers[at] = (last[at - whole] >> _REST) * _FINE
