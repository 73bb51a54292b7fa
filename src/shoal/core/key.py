"""Randomness as an argument. This is the only module that creates random generators.

A `Key` is 128 bits. `fold` derives another key from it by one block of the counter-based Philox
generator, so the keys of a whole cohort are independent of one another and of the order in which they
are requested. The seed enters through NumPy's `SeedSequence`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.kernels import philox
from shoal.kernels.philox_blocks import FOLD_INT, FOLD_TEXT

_INT, _TEXT = int(FOLD_INT), int(FOLD_TEXT)  # an integer and a string never give the same key


@lru_cache(maxsize=1024)
def text_word(text: str) -> int:
    """The 64-bit word that stands for a text when it is folded into a key."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True)
class Key:
    """A node in the tree of random streams, identified by everything that was folded into it."""

    words: tuple[int, int]

    @classmethod
    def from_seed(cls, seed: int) -> Key:
        """The root of a run's randomness."""
        first, second = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        return cls((int(first), int(second)))

    def fold(self, *parts: int | str) -> Key:
        """The key for `parts`, e.g. `key.fold("round", 3, "client", 17)`."""
        first, second = self.words
        for part in parts:
            value, kind = (part, _INT) if isinstance(part, int) else (text_word(part), _TEXT)
            first, second = philox.fold_one(first, second, value, kind)
        return Key((first, second))

    def fold_many(self, name: str, values: np.ndarray, purpose: str) -> np.ndarray:
        """[n, 2] uint64: the words of `fold(name, value, purpose)` for all values in one call."""
        words = philox.fold_many(self.fold(name).array, values.astype(np.uint64))
        return philox.fold_text(words, np.uint64(text_word(purpose)))

    @property
    def array(self) -> np.ndarray:
        """[2] uint64: the words, in the form that the compiled kernels take."""
        return _pair(self.words)

    def numpy(self) -> np.random.Generator:
        """A fresh NumPy generator; the same key always gives the same stream."""
        return np.random.Generator(np.random.Philox(key=_pair(self.words)))

    def torch(self) -> torch.Generator:
        """A fresh torch generator on the CPU."""
        return torch.Generator().manual_seed(self.words[0] >> 1)

    def uniform(self, shape: tuple[int, ...]) -> Tensor:
        """Float32 numbers in [0, 1), multiples of 2^-16."""
        return torch.from_numpy(philox.uniforms(*self.words, math.prod(shape))).reshape(shape)

    def integers(self, bound: int, size: int) -> Tensor:
        """[size] int64: numbers in 0 ... bound - 1, each equally likely."""
        return torch.from_numpy(philox.integers(self.array[None], bound, size)[0])

    def signs(self, size: int) -> Tensor:
        """[size] float32: numbers that are 1 or -1, each equally likely."""
        return torch.from_numpy(philox.signs(*self.words, size))

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """Seed torch's global generator from the key within this block, and restore it afterwards.

        Only for code that has no other source of randomness: the constructors of `torch.nn` modules.
        """
        with torch.random.fork_rng(devices=[]):
            # not `torch.manual_seed`, which seeds all devices, records its caller, and takes 2 ms
            torch.default_generator.manual_seed(self.words[0] >> 1)
            yield


class ClientKeys(Sequence[Key]):
    """`key.fold("client", id, purpose)` for each of several clients, derived on access."""

    def __init__(self, key: Key, clients: Sequence[int], purpose: str) -> None:
        self._key, self._clients, self._purpose = key, clients, purpose

    def __len__(self) -> int:
        return len(self._clients)

    def __getitem__(self, position: Any) -> Any:
        return self._key.fold("client", self._clients[position], self._purpose)


def _pair(words: tuple[int, int]) -> np.ndarray:
    return np.array(words, np.uint64)
