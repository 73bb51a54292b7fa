"""A partition that remembers at which of its clients anybody looked: `crowd:Crowd` in a spec."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.core.data import Dataset, Partition, Shards
from shoal.core.key import Key

SEEN: set[int] = set()


@dataclass(frozen=True)
class Watched(Shards):
    """Every client holds the same samples."""

    clients: int
    rows: int

    def __len__(self) -> int:
        return self.clients

    def indices(self, client: int) -> np.ndarray:
        SEEN.add(int(client))
        return np.arange(self.rows)

    def count(self, client: int) -> int:
        return len(self.indices(client))


@dataclass(frozen=True)
class Crowd(Partition):
    clients: int = 1000

    def split(self, dataset: Dataset, key: Key) -> Shards:
        return Watched(self.clients, 20)
