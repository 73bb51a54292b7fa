"""Randomness as an argument. The only place where generators are made.

A `Key` is 128 bits. `fold` derives another key from it by one block of the counter-based Philox
generator, so the keys of a whole cohort are independent of one another and of the order in which they
are asked for. The seed enters through NumPy's `SeedSequence`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

_FOLD_INT, _FOLD_TEXT = 1, 2  # the counter's last word: folds never meet the stream of the key itself


@lru_cache(maxsize=1024)
def _text_word(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True)
class Key:
    """A point in the tree of random streams, named by what was folded into it."""

    words: tuple[int, int]

    @classmethod
    def from_seed(cls, seed: int) -> Key:
        """The root of a run's randomness."""
        first, second = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        return cls((int(first), int(second)))

    def fold(self, *parts: int | str) -> Key:
        """The key for `parts`, e.g. `key.fold("round", 3, "client", 17)`."""
        words = self.words
        for part in parts:
            counter = (
                [part, 0, 0, _FOLD_INT] if isinstance(part, int) else [_text_word(part), 0, 0, _FOLD_TEXT]
            )
            block = np.random.Philox(key=_pair(words), counter=np.array(counter, np.uint64))
            first, second = block.random_raw(2)
            words = (int(first), int(second))
        return Key(words)

    def numpy(self) -> np.random.Generator:
        """A fresh NumPy generator; the same key always gives the same stream."""
        return np.random.Generator(np.random.Philox(key=_pair(self.words)))

    def torch(self) -> torch.Generator:
        """A fresh torch generator on the CPU."""
        return torch.Generator().manual_seed(self.words[0] >> 1)

    def uniform(self, shape: tuple[int, ...]) -> Tensor:
        """Float32 numbers in [0, 1)."""
        return torch.from_numpy(self.numpy().random(shape, dtype=np.float32))

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """Within this block torch's global generator is seeded from the key; afterwards it is as before.

        Only for code that knows no other source of randomness: the constructors of `torch.nn` modules.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.words[0] >> 1)
            yield


def _pair(words: tuple[int, int]) -> np.ndarray:
    return np.array(words, np.uint64)
