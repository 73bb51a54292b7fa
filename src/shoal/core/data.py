"""What samples there are, and who holds which."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.kernels.philox import permutations


@dataclass(frozen=True)
class Dataset:
    """A data set in memory. `classes = 0` says that it is a regression."""

    name: str
    x_train: Tensor  # [n, *shape] float32
    y_train: Tensor  # [n] int64 labels, or [n] float32 targets
    x_test: Tensor
    y_test: Tensor
    classes: int
    groups_train: np.ndarray | None = None  # [n] int64: the natural client of each sample, 0, 1, ...
    groups_test: np.ndarray | None = None
    group_names: Sequence[str] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x_train.shape[1:])

    def check(self) -> None:
        """Raise `SpecError` if the arrays do not fit together."""
        for part in ("train", "test"):
            x, y = getattr(self, f"x_{part}"), getattr(self, f"y_{part}")
            wanted = torch.int64 if self.classes else torch.float32
            for name, value, dtype in ((f"x_{part}", x, torch.float32), (f"y_{part}", y, wanted)):
                if not isinstance(value, Tensor) or value.dtype != dtype:
                    found = value.dtype if isinstance(value, Tensor) else type(value).__name__
                    raise SpecError(
                        f"{name} of data set {self.name} must be a tensor of {dtype}, got {found}"
                    )
            if len(x) != len(y) or not len(x):
                raise SpecError(f"data set {self.name} has {len(x)} samples and {len(y)} labels to {part}")
            if self.classes and not 0 <= int(y.min()) <= int(y.max()) < self.classes:
                found = f"{int(y.min())} to {int(y.max())}"
                raise SpecError(
                    f"labels of data set {self.name} must be 0 to {self.classes - 1}, got {found}"
                )


class Shards(ABC):
    """Who holds which training samples. Lazy: asking for one client costs nothing for the others."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of clients; their ids are 0, 1, ..., len - 1."""

    @abstractmethod
    def indices(self, client: int) -> np.ndarray:
        """[count] int64: rows of the training set that `client` holds, in a fixed order."""

    @abstractmethod
    def count(self, client: int) -> int:
        """How many samples `client` holds."""

    def counts(self, clients: Sequence[int]) -> list[int]:
        """How many samples each of several clients holds."""
        return [self.count(client) for client in clients]

    def many(self, clients: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The rows of several clients, one client after another, and how many each holds."""
        held = [self.indices(client) for client in clients]
        return np.concatenate(held), np.array([len(rows) for rows in held])


class Partition(ABC):
    """A rule that deals the training samples to clients."""

    @abstractmethod
    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Deal. Raises `SpecError` where the data set does not allow it."""


class Batching(NamedTuple):
    """How often a client goes through its samples, and in batches of what size."""

    batch: int
    epochs: int


class Batch(NamedTuple):
    """The samples of one training step."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Data:
    """The samples of one client, or of a block of clients: rows of arrays that all share.

    What a block computes has a leading client axis (`stacked`); what one client computes has none.
    """

    x: Tensor
    y: Tensor
    rows: np.ndarray  # int64: which of the arrays' rows are held, client after client
    counts: np.ndarray  # [clients] int64
    plan: Plan
    classes: int
    stacked: bool = False
    threads: int = 1  # that may work on a block, each on clients of its own

    @property
    def count(self) -> int:
        """How many samples there are."""
        return len(self.rows)

    @property
    def weight(self) -> Tensor:
        """[] or [clients] float64: the numbers of samples."""
        weights = torch.from_numpy(self.counts).double()
        return weights if self.stacked else weights[0]

    @property
    def train(self) -> Iterator[Batch]:
        """The scheduled batches of one client, in order."""
        rows = torch.from_numpy(self.rows)[torch.from_numpy(self.plan.order)]
        for first, last in pairwise(self.plan.step_ptr.tolist()):
            yield Batch(self.x[rows[first:last]], self.y[rows[first:last]])

    @property
    def all(self) -> Batch:
        """Every sample once."""
        rows = torch.from_numpy(self.rows)
        return Batch(self.x[rows], self.y[rows])

    @property
    def all_y(self) -> Tensor:
        """The labels of all samples."""
        return self.y[torch.from_numpy(self.rows)]

    @property
    def label_counts(self) -> Tensor:
        """[classes] int64: how many samples of each class there are."""
        return torch.bincount(self.all_y, minlength=self.classes)


class Plan(NamedTuple):
    """Which samples each training step takes, step after step, client after client."""

    order: np.ndarray  # int64: positions in `Data.rows`
    step_ptr: np.ndarray  # [steps + 1] int64: where each step begins in `order`
    client_ptr: np.ndarray  # [clients + 1] int64: where each client begins among the steps


NO_PLAN = Plan(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(2, np.int64))


def schedule(counts: np.ndarray, batching: Batching, words: np.ndarray, *, full: bool) -> Plan:
    """Every epoch a new order, cut into batches. `words` [clients, 2] are those of the clients' keys.

    The last batch of an epoch may be smaller. With `full` it is filled up from the start of the same order,
    because a batch of one sample has no variance for a normalisation layer to divide by.
    """
    batch, epochs = batching
    order = permutations(words, counts, epochs)
    begins = np.repeat(np.cumsum(counts) - counts, counts * epochs)
    steps = -(-counts // batch)
    client_ptr = _running(steps * epochs)
    sizes = np.full(client_ptr[-1], batch, np.int64)
    rest = counts - (steps - 1) * batch
    if full:
        order, begins = (
            _filled(order, counts, epochs, steps * batch),
            np.repeat(np.cumsum(counts) - counts, steps * batch * epochs),
        )
    else:
        sizes[np.cumsum(np.repeat(steps, epochs)) - 1] = np.repeat(rest, epochs)
    return Plan(order + begins, _running(sizes), client_ptr)


def _filled(order: np.ndarray, counts: np.ndarray, epochs: int, wanted: np.ndarray) -> np.ndarray:
    """Each epoch's order, repeated up to the wanted length."""
    epochs_of = np.split(order, np.cumsum(np.repeat(counts, epochs))[:-1])
    lengths = np.repeat(wanted, epochs)
    return np.concatenate([np.resize(one, length) for one, length in zip(epochs_of, lengths, strict=True)])


def _running(sizes: np.ndarray) -> np.ndarray:
    """0, and the running sum."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


class LaneBatch(NamedTuple):
    """One training step of a client inside a block, padded to the block's common shape."""

    x: Tensor
    y: Tensor
    mask: Tensor  # [batch] float32: 1 for samples, 0 for padding
    noise: Mapping[str, Tensor]


@dataclass(frozen=True)
class Lanes:
    """One client's samples as `vmap` sees them: of one shape for all clients of the block."""

    x: Tensor
    y: Tensor
    rows: Tensor  # [steps, batch] int64
    mask: Tensor  # [steps, batch] float32
    noise: Mapping[str, Tensor]  # each [steps, batch, ...]
    weight: Tensor  # [] float64

    @property
    def train(self) -> Iterator[LaneBatch]:
        """The scheduled batches, in order."""
        for step in range(self.rows.shape[0]):
            rows = self.rows[step]
            noise = {name: value[step] for name, value in self.noise.items()}
            yield LaneBatch(self.x[rows], self.y[rows], self.mask[step], noise)
