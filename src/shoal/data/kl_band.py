"""A partition in which each client's label mix has a given distance from the uniform one.

These are the label presets of SITUA-CQ's authors: a mix is drawn from Dirichlet(0.3) until its
Kullback-Leibler divergence from the uniform one lies in a band.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.core.data import Dataset, Partition, Shards
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.data.partition_steps import at_least, class_sizes, labels_of
from shoal.data.shards import check_client

BETA = 0.3
DRAWS = 10_000  # attempts to draw a mix before the band counts as unreachable


@dataclass(frozen=True)
class KlBand(Partition):
    """Gives clients label mixes with a KL divergence of `low` to `high` from uniform; samples overlap."""

    clients: int = 100
    samples: int = 1000
    low: float = 0.2
    high: float = 2.0

    def __post_init__(self) -> None:
        at_least("clients", self.clients, 1)
        at_least("samples", self.samples, 1)
        if not 0 <= self.low < self.high:
            raise SpecError(
                f"low must be at least 0 and below high, got low = {self.low:g}, high = {self.high:g}"
            )

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Draw nothing yet: a client's samples are drawn on access."""
        counts = class_sizes(dataset, "kl_band")
        most = math.log(len(counts))
        if self.low >= most:
            raise SpecError(
                f"low must be below {most:.3g}, the divergence of a single one of {len(counts)} classes, "
                f"got {self.low:g}"
            )
        if not counts.all():
            raise SpecError(f"kl_band needs samples of all {len(counts)} classes of {dataset.name}")
        labels = labels_of(dataset)
        shards = BandShards(self, tuple(np.flatnonzero(labels == c) for c in range(len(counts))), key)
        shards.mix(0)  # fail now if the band is unreachable
        return shards


class BandShards(Shards):
    """The samples of each client, drawn from its key."""

    def __init__(self, band: KlBand, rows: tuple[np.ndarray, ...], key: Key) -> None:
        self._band, self._rows, self._key = band, rows, key

    def __len__(self) -> int:
        return self._band.clients

    def count(self, client: int) -> int:
        """See `Shards`."""
        check_client(client, len(self))
        return self._band.samples

    def counts(self, clients: Sequence[int]) -> list[int]:
        """See `Shards`; the same number for all clients."""
        return [self._band.samples] * len(clients)

    def mix(self, client: int) -> np.ndarray:
        """[classes]: the client's label mix."""
        rng = self._key.fold("mix", client).numpy()
        classes = len(self._rows)
        for _ in range(DRAWS):
            shares = rng.dirichlet(np.full(classes, BETA))
            apart = float((shares[shares > 0] * np.log(shares[shares > 0] * classes)).sum())
            if self._band.low <= apart <= self._band.high:
                return np.asarray(shares)
        raise SpecError(
            f"no label mix between low = {self._band.low:g} and high = {self._band.high:g} was found in "
            f"{DRAWS:,} draws; widen the band"
        )

    def indices(self, client: int) -> np.ndarray:
        """See `Shards`. The samples of a class that is too small are repeated."""
        check_client(client, len(self))
        rng = self._key.fold("rows", client).numpy()
        wanted = rng.multinomial(self._band.samples, self.mix(client))
        picked = [np.resize(rng.permutation(rows), n) for rows, n in zip(self._rows, wanted, strict=True)]
        return np.asarray(rng.permutation(np.concatenate(picked)), np.int64)
