"""The samples that each client holds: stored lists, or lists drawn on access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.core.data import Dataset, Shards
from shoal.core.key import Key
from shoal.kernels.philox import fold_many, integers

_TOGETHER = 10_000  # clients whose labels are counted at once: a trade-off between speed and memory


@dataclass(frozen=True, eq=False)
class DealtShards(Shards):
    """A partition in which every sample belongs to one client, stored as one array of rows and offsets."""

    order: np.ndarray  # [n] int64: the rows of client 0, then those of client 1, ...
    offsets: np.ndarray  # [clients + 1] int64
    names: Sequence[str] = ()

    @classmethod
    def by_owner(cls, owner: np.ndarray, clients: int, key: Key, names: Sequence[str] = ()) -> DealtShards:
        """Build it from the client of each sample. A client's rows are in random order, not by class."""
        rows = key.numpy().permutation(len(owner))
        offsets = np.zeros(clients + 1, np.int64)
        np.cumsum(np.bincount(owner, minlength=clients), out=offsets[1:])
        return cls(rows[np.argsort(owner[rows], kind="stable")], offsets, names)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def indices(self, client: int) -> np.ndarray:
        """[count] int64, a view of `order`."""
        check_client(client, len(self))
        return self.order[self.offsets[client] : self.offsets[client + 1]]

    def count(self, client: int) -> int:
        """The number of samples that `client` holds."""
        check_client(client, len(self))
        return int(self.offsets[client + 1] - self.offsets[client])

    def counts(self, clients: Sequence[int]) -> list[int]:
        """See `Shards`; vectorised."""
        sizes: list[int] = self._sizes(np.array(clients)).tolist()
        return sizes

    def many(self, clients: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """See `Shards`; vectorised."""
        chosen = np.array(clients)
        counts = self._sizes(chosen)
        begins = np.repeat(self.offsets[chosen] - (np.cumsum(counts) - counts), counts)
        return self.order[begins + np.arange(len(begins))], counts

    def _sizes(self, clients: np.ndarray) -> np.ndarray:
        sizes: np.ndarray = self.offsets[clients + 1] - self.offsets[clients]
        return sizes


@dataclass(frozen=True)
class DrawnShards(Shards):
    """`samples` rows per client, drawn with replacement from the client's own key on access."""

    clients: int
    samples: int
    rows: int  # of the training set
    key: Key

    def __len__(self) -> int:
        return self.clients

    def indices(self, client: int) -> np.ndarray:
        """[samples] int64, the same in every call."""
        check_client(client, self.clients)
        drawn: np.ndarray = integers(self.key.fold(int(client)).array[None], self.rows, self.samples)[0]
        return drawn

    def many(self, clients: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """See `Shards`; vectorised."""
        words = fold_many(self.key.array, np.array(clients, np.uint64))
        rows: np.ndarray = integers(words, self.rows, self.samples)
        return rows.reshape(-1), np.full(len(clients), self.samples)

    def count(self, client: int) -> int:
        """`samples`, for every client."""
        check_client(client, self.clients)
        return self.samples

    def counts(self, clients: Sequence[int]) -> list[int]:
        """See `Shards`; the same number for all clients."""
        return [self.samples] * len(clients)


def label_matrix(dataset: Dataset, shards: Shards, clients: Sequence[int]) -> np.ndarray:
    """[len(clients), classes] int64: the number of samples of each class that each client holds.

    Regression has no classes: a single column counts all samples.
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


def check_client(client: int, clients: int) -> None:
    """Raise `IndexError` for an id that no client has."""
    if not 0 <= client < clients:
        raise IndexError(f"there is no client {client}; ids are 0 to {clients - 1}")
