"""Changes to bytes that a reader of them should survive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WORDS = (
    *(
        b"0",
        b"-1",
        b"1e999",
        b"NaN",
        b"null",
        b"true",
        b"99999999999999999999",
        b"2147483648",
        b"\xff\xff\xff\xff",
    ),
    *(
        b"[",
        b"]",
        b"{",
        b"}",
        b'"',
        b",",
        b":",
        b"\n",
        b"\0",
        b"[[[[[[[[",
        b'["t","float32",[-1]]',
        b"\\ud800",
    ),
    *(b"=", b"'", b'"""', b"\r\n", b";", b"\xef\xbb\xbf", b"\x80", b"os:abort", b"inf", b"1_0", b"0x10"),
)


def mutated(data: bytes, seeds: Sequence[bytes], rng: np.random.Generator) -> bytes:
    """`data` after one to four changes; `seeds` are other inputs, of which it may get parts."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        at, kind = int(rng.integers(len(changed) + 1)), int(rng.integers(8))
        length = int(rng.integers(1, 1 + min(64, len(changed) + 1)))
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << int(rng.integers(8))
        elif kind == 1 and at < len(changed):
            changed[at] = int(rng.integers(256))
        elif kind == 2:
            del changed[at : at + length]
        elif kind == 3:
            changed[at:at] = changed[at : at + length] * int(rng.integers(1, 4))
        elif kind == 4:
            changed[at:at] = WORDS[int(rng.integers(len(WORDS)))]
        elif kind == 5:
            word = WORDS[int(rng.integers(len(WORDS)))]
            changed[at : at + len(word)] = word
        elif kind == 6:
            other = seeds[int(rng.integers(len(seeds)))]
            begin = int(rng.integers(len(other) + 1))
            changed[at:at] = other[begin : begin + length]
        else:
            del changed[at:]
    return bytes(changed)
