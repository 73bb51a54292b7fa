"""NumPy's Philox4x64-10, for many keys at once.

A key is two 64-bit words. Its stream is that of NumPy's Philox with these words as its key. Folding in a
value gives the first two numbers of that stream with the counter set to this value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, int64, uint64

from shoal.kernels.jit import Index, Word, given, inner, kernel
from shoal.kernels.philox_blocks import (
    FOLD_INT,
    FOLD_TEXT,
    PAIR,
    PER_BLOCK,
    block_of,
    fold,
    fractions,
    product,
)

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_NONE: Index = np.int64(0)  # a literal would be compiled as a separate type


@kernel(PAIR(uint64, uint64, uint64, uint64))
def fold_one(first: Word, second: Word, value: Word, kind: Word) -> tuple[int, int]:
    """The words of the key that results from folding `value` into the key (first, second)."""
    return fold(first, second, value, kind)  # type: ignore[return-value]  # to Python it returns plain integers


@kernel(uint64[:, ::1](given(uint64, 1), given(uint64, 1)))
def fold_many(words: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[n, 2]: the words of `Key(words).fold(value)` for each of n integers."""
    if words.size != 2:
        raise ValueError("a key has two words")
    folded = np.empty((values.size, 2), np.uint64)
    for i in range(values.size):
        folded[i, 0], folded[i, 1] = fold(words[0], words[1], values[i], FOLD_INT)
    return folded


@kernel(uint64[:, ::1](given(uint64, 2), uint64))
def fold_text(words: np.ndarray, text_word: Word) -> np.ndarray:
    """[n, 2]: the words of `Key(row).fold(text)` for each row of words [n, 2], given the text's word."""
    if words.shape[1] != 2:
        raise ValueError("a key has two words")
    folded = np.empty(words.shape, np.uint64)
    for i in range(len(words)):
        folded[i, 0], folded[i, 1] = fold(words[i, 0], words[i, 1], text_word, FOLD_TEXT)
    return folded


@inner
def _next(key: tuple[Word, Word], drawn: Index, buffer: np.ndarray) -> Any:
    """The number at index `drawn` of the key's stream; `buffer` holds its block."""
    at = drawn % 4
    if at == 0:
        buffer[0], buffer[1], buffer[2], buffer[3] = block_of(key, np.uint64(drawn // 4 + 1), _ZERO, _ZERO)
    return buffer[at]


@inner
def _below(bound: Word, key: tuple[Word, Word], drawn: Index, buffer: np.ndarray) -> tuple[np.int64, Index]:
    """A uniformly distributed number below `bound`, and the number of stream numbers drawn so far.

    It is the high word of `bound` times a word of the stream; a few words are rejected, by the low word, to
    make all numbers equally likely (Lemire).
    """
    low, high = product(_next(key, drawn, buffer), bound)
    drawn += 1
    if low < bound:
        surplus = (_ZERO - bound) % bound  # 2^64 mod bound
        while low < surplus:
            low, high = product(_next(key, drawn, buffer), bound)
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
        key, drawn = (words[i, 0], words[i, 1]), _NONE
        for _ in range(epochs):
            order = orders[at : at + counts[i]]
            at += counts[i]
            for place in range(order.size):
                order[place] = place
            for place in range(order.size - 1, 0, -1):
                other, drawn = _below(np.uint64(place + 1), key, drawn, buffer)
                order[place], order[other] = order[other], order[place]
    return orders


@kernel(float32[::1](uint64, uint64, int64))
def uniforms(first: Word, second: Word, size: int) -> np.ndarray:
    """[size]: multiples of 2^-16 in [0, 1) from the stream of the key (first, second), four from each word.

    They are for dropout: more digits would cost more time than the training step itself.
    """
    if size < 0:
        raise ValueError("the size must not be negative")
    numbers = np.empty(-(-size // PER_BLOCK) * PER_BLOCK, np.float32)
    fractions((first, second), np.int64(0), _ZERO, _ZERO, numbers)
    return numbers[:size]


@kernel(int64[:, ::1](given(uint64, 2), int64, int64))
def integers(words: np.ndarray, bound: int, size: int) -> np.ndarray:
    """[n, size]: numbers in 0 ... bound - 1 from each key's stream."""
    if words.shape[1] != 2 or bound < 1 or size < 0:
        raise ValueError("a key has two words, the bound is at least 1, and the size not negative")
    numbers, buffer = np.empty((len(words), size), np.int64), np.empty(4, np.uint64)
    for i in range(len(words)):
        key, drawn = (words[i, 0], words[i, 1]), _NONE
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
        words = block_of((first, second), np.uint64(start // 256 + 1), _ZERO, _ZERO)
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
    numbers, buffer, drawn = np.arange(bound), np.empty(4, np.uint64), _NONE
    for place in range(size):
        more, drawn = _below(np.uint64(bound - place), (first, second), drawn, buffer)
        numbers[place], numbers[place + more] = numbers[place + more], numbers[place]
    return numbers[:size].copy()
