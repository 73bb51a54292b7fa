"""Who holds what, in memory: dealt lists, and endless ones that are drawn when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.core.data import Dataset, Shards
from shoal.core.key import Key
from shoal.kernels.philox import fold_many, integers

_TOGETHER = 10_000  # clients whose labels are counted at once: enough to be fast, few enough for memory


@dataclass(frozen=True, eq=False)
class DealtShards(Shards):
    """Every sample at one client: one array of rows, cut at `offsets`, whatever the number of clients."""

    order: np.ndarray  # [n] int64: the rows of client 0, then those of client 1, ...
    offsets: np.ndarray  # [clients + 1] int64

    @classmethod
    def by_owner(cls, owner: np.ndarray, clients: int, key: Key) -> DealtShards:
        """From the client of each sample. A client's own rows come in a random order, not by class."""
        rows = key.numpy().permutation(len(owner))
        offsets = np.zeros(clients + 1, np.int64)
        np.cumsum(np.bincount(owner, minlength=clients), out=offsets[1:])
        return cls(rows[np.argsort(owner[rows], kind="stable")], offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def indices(self, client: int) -> np.ndarray:
        """[count] int64, a view of `order`."""
        _check(client, len(self))
        return self.order[self.offsets[client] : self.offsets[client + 1]]

    def count(self, client: int) -> int:
        """How many samples `client` holds."""
        _check(client, len(self))
        return int(self.offsets[client + 1] - self.offsets[client])

    def counts(self, clients: Sequence[int]) -> list[int]:
        """See `Shards`; in one call."""
        sizes: list[int] = self._sizes(np.array(clients)).tolist()
        return sizes

    def many(self, clients: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """See `Shards`; in one call."""
        chosen = np.array(clients)
        counts = self._sizes(chosen)
        begins = np.repeat(self.offsets[chosen] - (np.cumsum(counts) - counts), counts)
        return self.order[begins + np.arange(len(begins))], counts

    def _sizes(self, clients: np.ndarray) -> np.ndarray:
        sizes: np.ndarray = self.offsets[clients + 1] - self.offsets[clients]
        return sizes


@dataclass(frozen=True)
class DrawnShards(Shards):
    """`samples` rows a client, drawn with replacement from the client's own key when asked for."""

    clients: int
    samples: int
    rows: int  # of the training set
    key: Key

    def __len__(self) -> int:
        return self.clients

    def indices(self, client: int) -> np.ndarray:
        """[samples] int64, the same at every call."""
        _check(client, self.clients)
        drawn: np.ndarray = integers(self.key.fold(int(client)).array[None], self.rows, self.samples)[0]
        return drawn

    def many(self, clients: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """See `Shards`; in one call."""
        words = fold_many(self.key.array, np.array(clients, np.uint64))
        rows: np.ndarray = integers(words, self.rows, self.samples)
        return rows.reshape(-1), np.full(len(clients), self.samples)

    def count(self, client: int) -> int:
        """`samples`, for every client."""
        _check(client, self.clients)
        return self.samples

    def counts(self, clients: Sequence[int]) -> list[int]:
        """See `Shards`; without a look at the clients."""
        return [self.samples] * len(clients)


def label_matrix(dataset: Dataset, shards: Shards, clients: Sequence[int]) -> np.ndarray:
    """[len(clients), classes] int64: how many samples of each class each client holds.

    A regression has no classes: its one column counts all samples.
    """
    if not dataset.classes:
        return np.array(shards.counts(clients), np.int64)[:, None]
    classes, labels = dataset.classes, dataset.y_train.cpu().numpy()
    counts = np.zeros((len(clients), classes), np.int64)
    for first in range(0, len(clients), _TOGETHER):
        rows, held = shards.many(clients[first : first + _TOGETHER])
        places = np.repeat(np.arange(len(held)) * classes, held) + labels[rows]  # in the flattened matrix
        found = np.bincount(places, minlength=len(held) * classes)
        counts[first : first + len(held)] = found.reshape(-1, classes)
    return counts


def _check(client: int, clients: int) -> None:
    if not 0 <= client < clients:
        raise IndexError(f"client {client} is none of 0 ... {clients - 1}")
