"""Partitions: rules that divide the training samples among clients."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoal.core.data import Dataset, Partition, Shards
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.data.class_counts import even, owners, skewed, spread, top_up
from shoal.data.shards import DealtShards, DrawnShards


@dataclass(frozen=True)
class Iid(Partition):
    """IID: gives every client an equally large random share of the samples."""

    clients: int = 100

    def __post_init__(self) -> None:
        _at_least("clients", self.clients, 1)

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Divide the samples. Sizes differ by at most one."""
        count = len(dataset.y_train)
        _enough(dataset, count, self.clients)
        sizes = even(count, self.clients)
        return _by_counts(np.zeros(count, np.int64), sizes[:, None], key)


@dataclass(frozen=True)
class Consecutive(Partition):
    """Gives every client an equally large share of consecutive rows of the data set."""

    clients: int = 100

    def __post_init__(self) -> None:
        _at_least("clients", self.clients, 1)

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Divide the rows. Sizes differ by at most one, larger ones first."""
        count = len(dataset.y_train)
        _enough(dataset, count, self.clients)
        owner = np.repeat(np.arange(self.clients), even(count, self.clients))
        return DealtShards.by_owner(owner, self.clients, key.fold("order"))


@dataclass(frozen=True)
class Dirichlet(Partition):
    """Label skew: divides each class by a Dirichlet(beta) draw, with no client much above the mean size."""

    clients: int = 100
    beta: float = 0.1
    min_size: int = 10

    def __post_init__(self) -> None:
        _at_least("clients", self.clients, 1)
        _at_least("min_size", self.min_size, 1)
        _positive(self.beta, "skew the labels strongly, large ones hardly")

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Divide the samples once; then clients below `min_size`, by id, take from the largest client."""
        per_class = _per_class(dataset, "dirichlet")
        _enough(dataset, per_class.sum(), self.clients, self.min_size)
        counts = skewed(per_class, self.clients, self.beta, key.fold("shares").numpy())
        return _by_counts(_labels(dataset), top_up(counts, self.min_size), key)


@dataclass(frozen=True)
class LabelShards(Partition):
    """Gives every client exactly `classes` classes, and each class to equally many clients (within one)."""

    clients: int = 100
    classes: int = 2

    def __post_init__(self) -> None:
        _at_least("clients", self.clients, 1)
        _at_least("classes", self.classes, 1)

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Assign classes to clients, then divide the samples of each class evenly among its clients."""
        per_class = _per_class(dataset, "shards")
        total = len(per_class)
        _enough(dataset, per_class.sum(), self.clients)
        if self.classes > total:
            raise SpecError(f"classes must be at most the {total} of {dataset.name}, got {self.classes}")
        if self.clients * self.classes < total:
            raise SpecError(
                f"{self.clients} clients with {self.classes} classes each cannot hold the {total} classes of "
                f"{dataset.name}; use at least {-(-total // self.classes)} clients"
            )
        return _by_counts(_labels(dataset), spread(per_class, self._holders(total, key)), key)

    def _holders(self, total: int, key: Key) -> np.ndarray:
        """[clients, classes] bool. Each client takes the classes with the fewest holders, ties at random.

        Clients choose in random order, because the last ones take classes with one holder more than others.
        """
        rng = key.fold("holders").numpy()
        ties = rng.random((self.clients, total))
        holders = np.zeros((self.clients, total), bool)
        taken = np.zeros(total, np.int64)
        for client in rng.permutation(self.clients):
            chosen = np.argsort(taken + ties[client])[: self.classes]
            holders[client, chosen] = True
            taken[chosen] += 1
        return holders


@dataclass(frozen=True)
class OneClass(Partition):
    """Gives each client samples of one class only: client i holds class i mod the number of classes."""

    clients: int = 10

    def __post_init__(self) -> None:
        _at_least("clients", self.clients, 1)

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Divide each class evenly among its clients."""
        per_class = _per_class(dataset, "one_class")
        total = len(per_class)
        _enough(dataset, per_class.sum(), self.clients)
        if self.clients < total:
            raise SpecError(
                f"one_class needs at least one client per class, {total} for {dataset.name}, "
                f"got {self.clients}; use clients = {total} or more"
            )
        holders = np.arange(self.clients)[:, None] % total == np.arange(total)
        return _by_counts(_labels(dataset), spread(per_class, holders), key)


@dataclass(frozen=True)
class Quantity(Partition):
    """Quantity skew: draws the clients' sizes from Dirichlet(beta); the labels are IID."""

    clients: int = 100
    beta: float = 0.5
    min_size: int = 1

    def __post_init__(self) -> None:
        _at_least("clients", self.clients, 1)
        _at_least("min_size", self.min_size, 1)
        _positive(self.beta, "give a few clients almost everything, large ones give similar sizes")

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Divide the samples once; then clients below `min_size`, by id, take from the largest client."""
        count = len(dataset.y_train)
        _enough(dataset, count, self.clients, self.min_size)
        sizes = skewed(np.array([count]), self.clients, self.beta, key.fold("shares").numpy())
        return _by_counts(np.zeros(count, np.int64), top_up(sizes, self.min_size), key)


@dataclass(frozen=True)
class Natural(Partition):
    """Makes each natural group of the data set, such as a hospital, a client."""

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Give each group its own client."""
        groups = dataset.groups_train
        if groups is None:
            raise SpecError(
                f"{dataset.name} has no natural clients; use another kind of partition, or a data set that "
                f"has them: heart_disease"
            )
        sizes = np.bincount(groups, minlength=len(dataset.group_names))
        if not sizes.all():
            raise SpecError(
                f"group {sizes.argmin()} of {dataset.name} has no training samples; number groups 0, 1, ..."
            )
        return DealtShards.by_owner(groups, len(sizes), key.fold("order"))


@dataclass(frozen=True)
class Synthetic(Partition):
    """Draws `samples` per client with replacement, for populations larger than the data set."""

    clients: int = 1000
    samples: int = 50

    def __post_init__(self) -> None:
        _at_least("clients", self.clients, 1)
        _at_least("samples", self.samples, 1)

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Draw nothing yet: a client's samples are drawn on access."""
        return DrawnShards(self.clients, self.samples, len(dataset.y_train), key.fold("client"))


@dataclass(frozen=True)
class Unseen(Partition):
    """Gives the last `classes` classes to the last `newcomers` clients only, and the others to the rest."""

    clients: int = 100
    newcomers: int = 50
    classes: int = 5
    beta: float = 0.5
    min_size: int = 1

    def __post_init__(self) -> None:
        _at_least("clients", self.clients, 2)
        _at_least("newcomers", self.newcomers, 1)
        _at_least("classes", self.classes, 1)
        _at_least("min_size", self.min_size, 1)
        _positive(self.beta, "skew the labels strongly, large ones hardly")
        if self.newcomers >= self.clients:
            raise SpecError(
                f"newcomers must be fewer than clients = {self.clients}, got {self.newcomers}; "
                f"the others hold the known classes"
            )

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Divide the known and the unseen classes separately, each by the rule of `Dirichlet`."""
        per_class = _per_class(dataset, "unseen")
        _enough(dataset, per_class.sum(), self.clients)
        known = len(per_class) - self.classes
        if known < 1:
            raise SpecError(
                f"classes, the number of unseen classes, must be below the {len(per_class)} of "
                f"{dataset.name}, got {self.classes}"
            )
        veterans = self.clients - self.newcomers
        counts = np.zeros((self.clients, len(per_class)), np.int64)
        counts[:veterans, :known] = self._part(dataset, per_class[:known], veterans, key.fold("known"))
        counts[veterans:, known:] = self._part(dataset, per_class[known:], self.newcomers, key.fold("unseen"))
        return _by_counts(_labels(dataset), counts, key)

    def _part(self, dataset: Dataset, per_class: np.ndarray, clients: int, key: Key) -> np.ndarray:
        _enough(dataset, per_class.sum(), clients, self.min_size)
        return top_up(skewed(per_class, clients, self.beta, key.numpy()), self.min_size)


PARTITIONS: dict[str, type[Partition]] = {
    "iid": Iid,
    "consecutive": Consecutive,
    "dirichlet": Dirichlet,
    "shards": LabelShards,
    "one_class": OneClass,
    "quantity": Quantity,
    "natural": Natural,
    "synthetic": Synthetic,
    "unseen": Unseen,
}


def _by_counts(labels: np.ndarray, counts: np.ndarray, key: Key) -> Shards:
    owner = owners(labels, counts, key.fold("owners").numpy())
    return DealtShards.by_owner(owner, len(counts), key.fold("order"))


def _labels(dataset: Dataset) -> np.ndarray:
    labels: np.ndarray = dataset.y_train.numpy()
    return labels


def _per_class(dataset: Dataset, kind: str) -> np.ndarray:
    if not dataset.classes:
        raise SpecError(f"{kind} needs class labels, but {dataset.name} is a regression; use iid or quantity")
    return np.bincount(_labels(dataset), minlength=dataset.classes)


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise SpecError(f"{name} must be at least {least}, got {value}")


def _positive(beta: float, effect: str) -> None:
    if not 0 < beta < math.inf:
        raise SpecError(f"beta must be > 0, got {beta:g}; small values such as 0.1 {effect}")


def _enough(dataset: Dataset, count: int, clients: int, min_size: int = 1) -> None:
    """Raise `SpecError` if there are fewer than `min_size` samples per client."""
    if min_size * clients <= count:
        return
    if clients > count:
        raise SpecError(
            f"{clients} clients are more than the {count} training samples of {dataset.name}; "
            f"use at most {count}, or the synthetic partition, which draws with replacement"
        )
    raise SpecError(
        f"min_size = {min_size} for {clients} clients needs {min_size * clients} training samples, but "
        f"{dataset.name} has {count}; use min_size = {count // clients} or fewer clients"
    )
