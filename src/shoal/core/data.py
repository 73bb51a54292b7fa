"""Data sets, partitions, and the samples of a client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
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
    """A data set in memory. `classes = 0` means regression."""

    name: str
    x_train: Tensor  # [n, *shape] of any dtype: float32 for most models, int64 for tokens
    y_train: Tensor  # [n] int64 labels, or [n] float32 targets
    x_test: Tensor
    y_test: Tensor
    classes: int
    groups_train: np.ndarray | None = None  # [n] int64: the natural client of each sample, numbered from 0
    groups_test: np.ndarray | None = None
    group_names: Sequence[str] = ()
    class_names: Sequence[str] = ()  # of the labels 0, 1, ..., if they have names

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x_train.shape[1:])

    def check(self) -> None:
        """Raise `SpecError` if the tensors do not match each other."""
        for part in ("train", "test"):
            x, y = getattr(self, f"x_{part}"), getattr(self, f"y_{part}")
            if not isinstance(x, Tensor):
                raise SpecError(f"x_{part} of data set {self.name} must be a tensor, got {type(x).__name__}")
            wanted = torch.int64 if self.classes else torch.float32
            if not isinstance(y, Tensor) or y.dtype != wanted:
                found = y.dtype if isinstance(y, Tensor) else type(y).__name__
                raise SpecError(f"y_{part} of data set {self.name} must be a tensor of {wanted}, got {found}")
            if len(x) != len(y) or not len(x):
                raise SpecError(f"{part} set of {self.name} has {len(x)} samples and {len(y)} labels")
            if self.classes and not 0 <= int(y.min()) <= int(y.max()) < self.classes:
                found = f"{int(y.min())} to {int(y.max())}"
                raise SpecError(
                    f"labels of data set {self.name} must be 0 to {self.classes - 1}, got {found}"
                )


class Shards(ABC):
    """Which training samples each client holds. Lazy: reading one client does not touch the others."""

    names: Sequence[str] = ()  # of the clients, if they have names

    @abstractmethod
    def __len__(self) -> int:
        """The number of clients; their ids are 0, 1, ..., len - 1."""

    @abstractmethod
    def indices(self, client: int) -> np.ndarray:
        """[count] int64: rows of the training set that `client` holds, in a fixed order."""

    @abstractmethod
    def count(self, client: int) -> int:
        """The number of samples that `client` holds."""

    def counts(self, clients: Sequence[int]) -> list[int]:
        """The number of samples that each of these clients holds."""
        return [self.count(client) for client in clients]

    def many(self, clients: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The rows of several clients, one client after another, and the number of rows of each."""
        held = [self.indices(client) for client in clients]
        return np.concatenate(held), np.array([len(rows) for rows in held])


class Partition(ABC):
    """A rule that divides the training samples among clients."""

    @abstractmethod
    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Divide the samples. Raises `SpecError` if the data set does not allow it."""


class Batching(NamedTuple):
    """The number of local epochs, and the batch size."""

    batch: int
    epochs: int


class Batch(NamedTuple):
    """The samples of one training step."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Data:
    """The samples of one client, stored as rows of arrays that all clients share."""

    x: Tensor
    y: Tensor
    rows: np.ndarray  # [count] int64: the rows of the arrays that the client holds
    plan: Plan
    classes: int

    @property
    def count(self) -> int:
        """The number of samples."""
        return len(self.rows)

    @property
    def weight(self) -> Tensor:
        """[] float64: the number of samples."""
        return torch.scalar_tensor(self.count, dtype=torch.float64)  # twice as fast as `torch.tensor`

    @property
    def train(self) -> Iterator[Batch]:
        """The scheduled mini-batches, in order."""
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
        """[classes] int64: the number of samples of each class."""
        return torch.bincount(self.all_y, minlength=self.classes)


class Plan(NamedTuple):
    """Which samples each training step uses: step after step, client after client."""

    order: np.ndarray  # int64: positions among the rows of a client, concatenated over clients
    step_ptr: np.ndarray  # [steps + 1] int64: where each step starts in `order`
    client_ptr: np.ndarray  # [clients + 1] int64: the first step of each client

    def singles(self, counts: np.ndarray) -> list[Plan]:
        """The plan of each client; `counts` [clients] are their numbers of samples."""
        found = []
        for (first, last), begin in zip(pairwise(self.client_ptr.tolist()), _running(counts).tolist()):
            steps = self.step_ptr[first : last + 1]
            order = self.order[steps[0] : steps[-1]] - begin
            found.append(Plan(order, steps - steps[0], np.array([0, last - first])))
        return found


NO_PLAN = Plan(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(2, np.int64))


class Block(NamedTuple):
    """The scheduled samples of several clients, in the form that the kernels take."""

    x: Tensor
    y: Tensor
    rows: np.ndarray  # int64: the rows of the arrays that each step uses, concatenated over steps
    step_ptr: np.ndarray  # [steps + 1] int64: where each step starts in `rows`
    client_ptr: np.ndarray  # [clients + 1] int64: the first step of each client
    counts: np.ndarray  # [clients] int64: the number of samples of each client
    held: np.ndarray  # int64: the rows of all samples, client after client

    @property
    def weight(self) -> Tensor:
        """[clients] float64: the number of samples of each client."""
        return torch.from_numpy(self.counts).double()

    def samples(self, classes: int) -> list[Data]:
        """The samples of each client, without a schedule."""
        pieces = np.split(self.held, np.cumsum(self.counts)[:-1])
        return [Data(self.x, self.y, rows, NO_PLAN, classes) for rows in pieces]

    @classmethod
    def of(cls, held: Sequence[Data]) -> Block:
        """The block of these clients, each with its own plan."""
        x, y, begins = held[0].x, held[0].y, [0] * len(held)
        if any(data.x is not x for data in held):  # attackers have their own, poisoned samples
            x, y = torch.cat([data.x for data in held]), torch.cat([data.y for data in held])
            begins = np.cumsum([0, *(len(data.x) for data in held)]).tolist()
        lengths = np.concatenate([np.diff(data.plan.step_ptr) for data in held])
        return cls(
            x,
            y,
            np.concatenate([b + data.rows[data.plan.order] for b, data in zip(begins, held, strict=False)]),
            _running(lengths),
            _running(np.array([len(data.plan.step_ptr) - 1 for data in held])),
            np.array([data.count for data in held]),
            np.concatenate([b + data.rows for b, data in zip(begins, held, strict=False)]),
        )


def schedule(counts: np.ndarray, batching: Batching, words: np.ndarray, *, full: bool) -> Plan:
    """A new random order in every epoch, cut into mini-batches. `words` [clients, 2] are the clients' keys.

    The last batch of an epoch may be smaller. With `full` it is filled up from the start of the same order,
    because normalisation layers cannot compute a variance from one sample. No batch is larger than its
    client's number of samples.
    """
    epochs = batching.epochs
    batch = np.minimum(batching.batch, np.maximum(counts, 1))  # [clients]
    order = permutations(words, counts, epochs)
    begins = np.repeat(np.cumsum(counts) - counts, counts * epochs)
    steps = -(-counts // batch)
    client_ptr = _running(steps * epochs)
    sizes = np.repeat(batch, steps * epochs)
    if full:
        order, begins = (
            _filled(order, counts, epochs, steps * batch),
            np.repeat(np.cumsum(counts) - counts, steps * batch * epochs),
        )
    else:
        rest = counts - (steps - 1) * batch
        trains = steps > 0
        ends = np.cumsum(np.repeat(steps[trains], epochs)) - 1
        sizes[ends] = np.repeat(rest[trains], epochs)
    return Plan(order + begins, _running(sizes), client_ptr)


def _filled(order: np.ndarray, counts: np.ndarray, epochs: int, wanted: np.ndarray) -> np.ndarray:
    """The order of each epoch, repeated up to the wanted length."""
    epochs_of = np.split(order, np.cumsum(np.repeat(counts, epochs))[:-1])
    lengths = np.repeat(wanted, epochs)
    return np.concatenate([np.resize(one, length) for one, length in zip(epochs_of, lengths, strict=True)])


def _running(sizes: np.ndarray) -> np.ndarray:
    """The cumulative sum, starting with 0."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
