"""The partition for an audit: each client holds only a few samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.core.data import Dataset, Partition, Shards
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.data.shards import DealtShards


@dataclass(frozen=True)
class Victims(Partition):
    """Few clients with few samples each, cycling through the classes; most samples belong to no client."""

    clients: int = 10
    samples: int = 1

    def __post_init__(self) -> None:
        for name, value in (("clients", self.clients), ("samples", self.samples)):
            if value < 1:
                raise SpecError(f"{name} must be at least 1, got {value}")

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """See `Partition`."""
        wanted, total = self.clients * self.samples, len(dataset.y_train)
        if wanted > total:
            raise SpecError(
                f"{wanted} samples are wanted, but {dataset.name} has {total}; audit fewer images"
            )
        rows = key.numpy().permutation(total)
        if dataset.classes:
            rows = _in_turn(rows, dataset.y_train.cpu().numpy()[rows])
        return DealtShards(rows[:wanted], np.arange(0, wanted + 1, self.samples))


def _in_turn(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Reorder the rows so that the classes take turns."""
    turn = np.empty(len(rows), np.int64)
    for label in np.unique(labels):
        held = labels == label
        turn[held] = np.arange(held.sum())
    return rows[np.lexsort((labels, turn))]
