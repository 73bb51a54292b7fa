"""What samples there are, and who holds which."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.errors import SpecError
from shoal.core.key import Key


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
    """One client's samples: rows of arrays that all clients share, gathered when asked for."""

    x: Tensor
    y: Tensor
    rows: Tensor  # [count] int64: which of the arrays' rows are this client's
    steps: Sequence[Tensor]  # positions in `rows` for each training step
    classes: int

    @property
    def count(self) -> int:
        """How many samples the client holds."""
        return len(self.rows)

    @property
    def train(self) -> Iterator[Batch]:
        """The scheduled batches, in order."""
        for positions in self.steps:
            rows = self.rows[positions]
            yield Batch(self.x[rows], self.y[rows])

    @property
    def all(self) -> Batch:
        """Every sample once."""
        return Batch(self.x[self.rows], self.y[self.rows])

    @property
    def label_counts(self) -> Tensor:
        """[classes] int64: how many samples of each class the client holds."""
        return torch.bincount(self.y[self.rows], minlength=self.classes)


def schedule(count: int, batching: Batching, key: Key, *, full: bool) -> list[Tensor]:
    """The positions of each step's samples: every epoch a new order, cut into batches.

    The last batch of an epoch may be smaller. With `full` it is filled up from the start of the same order,
    because a batch of one sample has no variance for a normalisation layer to divide by.
    """
    generator = key.numpy()
    steps: list[Tensor] = []
    for _ in range(batching.epochs):
        order = generator.permutation(count)
        if full:
            order = np.resize(order, -(-count // batching.batch) * batching.batch)
        steps += torch.split(torch.from_numpy(order), batching.batch)
    return steps
