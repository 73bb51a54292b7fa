"""NumPy's Philox4x64-10, for many keys at once.

A key is two 64-bit words. Its stream is that of NumPy's Philox with these words as its key. Folding a value
in gives the first two numbers of that stream with the counter at this value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, int64, types, uint64

from shoal.kernels.jit import Index, Word, bare, emitted, given, inner, kernel

# the last word of the counter, which is 0 in the stream of the key itself
FOLD_INT, FOLD_TEXT = np.uint64(1), np.uint64(2)

PER_BLOCK = 16  # numbers that `fractions` draws from a block

_PAIR = types.UniTuple(uint64, 2)  # type: ignore[no-untyped-call]

_MULTIPLIERS = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_WEYL = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_ZERO, _ONE, _QUARTER = np.uint64(0), np.uint64(1), np.uint64(0xFFFF)
_STEP = np.float32(2.0**-16)
_REST, _FINE = np.uint64(11), 2.0**-53


@emitted
def _product(typing: Any, a: Any, b: Any) -> Any:
    """The 128-bit product, as two words: low, high."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        long = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], long), builder.zext(args[1], long))
        low = builder.trunc(product, ir.IntType(64))
        high = builder.trunc(builder.lshr(product, long(64)), ir.IntType(64))
        return context.make_tuple(builder, signature.return_type, (low, high))

    return _PAIR(uint64, uint64), emit


@bare
def _block(key: tuple[Word, Word], c0: Word, c1: Word, c3: Word) -> tuple[Word, Word, Word, Word]:
    """Four numbers from the counter (c0, c1, 0, c3)."""
    (k0, k1), c2 = key, _ZERO
    for _ in range(10):
        low0, high0 = _product(_MULTIPLIERS[0], c0)
        low1, high1 = _product(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 += _WEYL[0]
        k1 += _WEYL[1]
    return c0, c1, c2, c3


@kernel(_PAIR(uint64, uint64, uint64, uint64))
def fold_one(first: Word, second: Word, value: Word, kind: Word) -> tuple[int, int]:
    """The words of the key that results from folding `value` into the key (first, second)."""
    c0 = value + _ONE  # NumPy increments the counter before the first block, with carry
    c1 = _ONE if c0 == _ZERO else _ZERO
    word0, word1, _, _ = _block((first, second), c0, c1, kind)
    return word0, word1  # type: ignore[return-value]  # called from Python, it returns plain integers


@kernel(uint64[:, ::1](given(uint64, 1), given(uint64, 1)))
def fold_many(words: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[n, 2]: the words of `Key(words).fold(value)` for each of n integers."""
    if words.size != 2:
        raise ValueError("a key has two words")
    folded = np.empty((values.size, 2), np.uint64)
    for i in range(values.size):
        folded[i, 0], folded[i, 1] = fold_one(words[0], words[1], values[i], FOLD_INT)
    return folded


@kernel(uint64[:, ::1](given(uint64, 2), uint64))
def fold_text(words: np.ndarray, text_word: Word) -> np.ndarray:
    """[n, 2]: the words of `Key(row).fold(text)` for each row of words [n, 2], given the text's word."""
    if words.shape[1] != 2:
        raise ValueError("a key has two words")
    folded = np.empty(words.shape, np.uint64)
    for i in range(len(words)):
        folded[i, 0], folded[i, 1] = fold_one(words[i, 0], words[i, 1], text_word, FOLD_TEXT)
    return folded


@inner
def _next(key: tuple[Word, Word], drawn: int, buffer: np.ndarray) -> Any:
    """The number at index `drawn` of the key's stream; `buffer` holds its block."""
    at = drawn % 4
    if at == 0:
        buffer[0], buffer[1], buffer[2], buffer[3] = _block(key, np.uint64(drawn // 4 + 1), _ZERO, _ZERO)
    return buffer[at]


@inner
def _below(bound: Word, key: tuple[Word, Word], drawn: int, buffer: np.ndarray) -> tuple[np.int64, int]:
    """A uniformly distributed number below `bound`, and the number of stream numbers drawn so far.

    It is the high word of `bound` times a word of the stream; a few words are rejected, by the low word, to
    make all numbers equally likely (Lemire).
    """
    low, high = _product(_next(key, drawn, buffer), bound)
    drawn += 1
    if low < bound:
        surplus = (_ZERO - bound) % bound  # 2^64 mod bound
        while low < surplus:
            low, high = _product(_next(key, drawn, buffer), bound)
            drawn += 1
    return np.int64(high), drawn


@kernel(int64[::1](given(uint64, 2), given(int64, 1), int64))
def permutations(words: np.ndarray, counts: np.ndarray, epochs: int) -> np.ndarray:
    """`epochs` random orders of `range(count)` for each key, concatenated, from the key's own stream.

    Each is a Fisher-Yates shuffle of 0, 1, ...: from the last position down to the second, each is swapped
    with a random position up to itself.
    """
    if words.shape[0] != counts.size or words.shape[1] != 2 or epochs < 0:
        raise ValueError("every count needs a key of two words, and epochs must not be negative")
    total, at = 0, 0
    for count in counts:
        if count < 0:
            raise ValueError("counts must not be negative")
        total += count * epochs
    orders, buffer = np.empty(total, np.int64), np.empty(4, np.uint64)
    for i in range(counts.size):
        key, drawn = (words[i, 0], words[i, 1]), 0
        for _ in range(epochs):
            order = orders[at : at + counts[i]]
            at += counts[i]
            for place in range(order.size):
                order[place] = place
            for place in range(order.size - 1, 0, -1):
                other, drawn = _below(np.uint64(place + 1), key, drawn, buffer)
                order[place], order[other] = order[other], order[place]
    return orders


@bare
def fractions(key: tuple[Word, Word], block: Index, c1: Word, c3: Word, numbers: np.ndarray) -> None:
    """Fill an array with multiples of 2^-16 in [0, 1), four from each word, starting at a block of the key.

    Its size is a multiple of 16. `c1` and `c3` are words of the counter, which are 0 in the key's own stream.
    """
    for first in range(0, numbers.size, PER_BLOCK):
        block += 1
        a, b, c, d = _block(key, np.uint64(block), c1, c3)
        for j in range(4):
            shift = np.uint64(16 * j)
            at = first + j
            numbers[at] = np.float32((a >> shift) & _QUARTER) * _STEP
            numbers[at + 4] = np.float32((b >> shift) & _QUARTER) * _STEP
            numbers[at + 8] = np.float32((c >> shift) & _QUARTER) * _STEP
            numbers[at + 12] = np.float32((d >> shift) & _QUARTER) * _STEP


@kernel(float32[::1](uint64, uint64, int64))
def uniforms(first: Word, second: Word, size: int) -> np.ndarray:
    """[size]: multiples of 2^-16 in [0, 1) from the stream of the key (first, second), four from each word.

    They are for dropout: more digits would cost more time than the training step itself.
    """
    if size < 0:
        raise ValueError("the size must not be negative")
    numbers = np.empty(-(-size // PER_BLOCK) * PER_BLOCK, np.float32)
    fractions((first, second), 0, _ZERO, _ZERO, numbers)
    return numbers[:size]


@inner
def reals(key: tuple[Word, Word], block: Index, numbers: np.ndarray) -> None:
    """Fill an array with multiples of 2^-53 in [0, 1) from the key's stream, starting at a block of four."""
    whole = numbers.size - numbers.size % 4
    for at in range(0, whole, 4):
        block += 1
        a, b, c, d = _block(key, np.uint64(block), _ZERO, _ZERO)
        numbers[at], numbers[at + 1] = (a >> _REST) * _FINE, (b >> _REST) * _FINE
        numbers[at + 2], numbers[at + 3] = (c >> _REST) * _FINE, (d >> _REST) * _FINE
    if whole < numbers.size:
        last = _block(key, np.uint64(block + 1), _ZERO, _ZERO)
        for at in range(whole, numbers.size):
            numbers[at] = (last[at - whole] >> _REST) * _FINE


@kernel(int64[:, ::1](given(uint64, 2), int64, int64))
def integers(words: np.ndarray, bound: int, size: int) -> np.ndarray:
    """[n, size]: numbers in 0 ... bound - 1 from each key's stream."""
    if words.shape[1] != 2 or bound < 1 or size < 0:
        raise ValueError("a key has two words, the bound is at least 1, and the size not negative")
    numbers, buffer = np.empty((len(words), size), np.int64), np.empty(4, np.uint64)
    for i in range(len(words)):
        key, drawn = (words[i, 0], words[i, 1]), 0
        for j in range(size):
            numbers[i, j], drawn = _below(np.uint64(bound), key, drawn, buffer)
    return numbers


@kernel(float32[::1](uint64, uint64, int64))
def signs(first: Word, second: Word, size: int) -> np.ndarray:
    """[size]: numbers that are 1 or -1, 64 from each word of the key's stream."""
    if size < 0:
        raise ValueError("the size must not be negative")
    numbers = np.empty(-(-size // 256) * 256, np.float32)
    for start in range(0, numbers.size, 256):
        words = _block((first, second), np.uint64(start // 256 + 1), _ZERO, _ZERO)
        for j in range(4):
            some = numbers[start + 64 * j : start + 64 * (j + 1)]
            for bit in range(64):
                some[bit] = np.float32(1) - np.float32(2) * np.float32((words[j] >> np.uint64(bit)) & _ONE)
    return numbers[:size]


@kernel(int64[::1](uint64, uint64, int64, int64))
def sample(first: Word, second: Word, bound: int, size: int) -> np.ndarray:
    """[size]: distinct numbers in 0 ... bound - 1 from the stream of the key, every choice equally likely.

    They are the start of a Fisher-Yates shuffle.
    """
    if not 0 <= size <= bound:
        raise ValueError("there are not so many distinct numbers")
    numbers, buffer, drawn = np.arange(bound), np.empty(4, np.uint64), 0
    for place in range(size):
        more, drawn = _below(np.uint64(bound - place), (first, second), drawn, buffer)
        numbers[place], numbers[place + more] = numbers[place + more], numbers[place]
    return numbers[:size].copy()
