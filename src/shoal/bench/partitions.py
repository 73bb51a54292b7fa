"""Partitions for benchmarks that are not in the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.core.data import Dataset, Partition, Shards
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.data.shards import DealtShards


@dataclass(frozen=True)
class PowerLaw(Partition):
    """Two classes per client and sizes by a power law, as FedProx partitions MNIST.

    Client i holds classes i and i + 1: `base` samples of each, plus shares of the remainder that are drawn
    from lognormal(0, sigma). `mean` is the mean size before each share is capped at the samples that the data
    set has of a class, so the actual mean is a little lower. No client holds a sample twice, but several
    clients may hold the same one: the federation is larger than the data.
    """

    clients: int = 1000
    base: int = 5
    mean: int = 69
    sigma: float = 2.0

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise SpecError(f"clients must be at least 1, got {self.clients}")
        if self.base < 1:
            raise SpecError(f"base must be at least 1, got {self.base}")
        if self.mean < 2 * self.base:
            raise SpecError(f"mean must be at least 2 base = {2 * self.base}, got {self.mean}")
        if not self.sigma > 0:
            raise SpecError(f"sigma must be > 0, got {self.sigma:g}; 2 is what FedProx takes")

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Draw each client's rows of both classes, without replacement."""
        if dataset.classes < 2:
            raise SpecError(f"a power law over pairs of classes needs two of them; {dataset.name} has fewer")
        labels = dataset.y_train.cpu().numpy()
        rows = [np.flatnonzero(labels == label) for label in range(dataset.classes)]
        sizes = self._sizes(np.array([len(found) for found in rows]), key.fold("sizes").numpy())
        generator = key.fold("rows").numpy()
        held = []
        for client in range(self.clients):
            for place in range(2):
                found = rows[(client + place) % dataset.classes]
                held.append(generator.choice(found, sizes[client, place], replace=False))
        offsets = np.concatenate([[0], np.cumsum(sizes.sum(1))])
        return DealtShards(np.concatenate(held), offsets)

    def _sizes(self, per_class: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """[clients, 2] int64: the number of samples that each client holds of its two classes."""
        labels = (np.arange(self.clients)[:, None] + np.arange(2)) % len(per_class)
        shares = generator.lognormal(0.0, self.sigma, (self.clients, 2))
        extra = self.clients * (self.mean - 2 * self.base) / len(per_class)  # of each class
        totals = np.bincount(labels.ravel(), weights=shares.ravel(), minlength=len(per_class))
        sizes = self.base + (extra * shares / totals[labels]).astype(np.int64)
        most: np.ndarray = np.minimum(sizes, per_class[labels])
        return most
