"""Partitions: rules that divide the training samples among clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.core.data import Dataset, Partition, Shards
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.data.class_counts import assign_classes, skewed, split_evenly, spread, top_up
from shoal.data.kl_band import KlBand
from shoal.data.partition_steps import (
    at_least,
    by_counts,
    check_shards,
    class_sizes,
    enough,
    labels_of,
    positive,
)
from shoal.data.shards import DealtShards, DrawnShards
from shoal.data.unseen import Unseen


@dataclass(frozen=True)
class Iid(Partition):
    """IID: gives every client a random share of the samples, of equal size."""

    clients: int = 100

    def __post_init__(self) -> None:
        at_least("clients", self.clients, 1)

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Divide the samples. Sizes differ by at most one."""
        count = len(dataset.y_train)
        enough(dataset, count, self.clients)
        sizes = split_evenly(count, self.clients)
        return by_counts(np.zeros(count, np.int64), sizes[:, None], key)


@dataclass(frozen=True)
class Consecutive(Partition):
    """Gives every client consecutive rows of the data set, in shares of equal size."""

    clients: int = 100

    def __post_init__(self) -> None:
        at_least("clients", self.clients, 1)

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Divide the rows. Sizes differ by at most one, larger ones first."""
        count = len(dataset.y_train)
        enough(dataset, count, self.clients)
        owner = np.repeat(np.arange(self.clients), split_evenly(count, self.clients))
        return DealtShards.by_owner(owner, self.clients, key.fold("order"))


@dataclass(frozen=True)
class Dirichlet(Partition):
    """Label skew: divides each class by a Dirichlet(beta) draw, with no client much above the mean size."""

    clients: int = 100
    beta: float = 0.1
    min_size: int = 10

    def __post_init__(self) -> None:
        at_least("clients", self.clients, 1)
        at_least("min_size", self.min_size, 1)
        positive(self.beta, "skew the labels strongly, large ones hardly")

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Divide the samples once; then clients below `min_size`, by id, take from the largest client."""
        per_class = class_sizes(dataset, "dirichlet")
        enough(dataset, per_class.sum(), self.clients, self.min_size)
        counts = skewed(per_class, self.clients, self.beta, key.fold("shares").numpy())
        return by_counts(labels_of(dataset), top_up(counts, self.min_size), key)


@dataclass(frozen=True)
class LabelShards(Partition):
    """Gives every client exactly `classes` classes, and each class to equally many clients (up to one)."""

    clients: int = 100
    classes: int = 2

    def __post_init__(self) -> None:
        at_least("clients", self.clients, 1)
        at_least("classes", self.classes, 1)

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Assign classes to clients, then divide the samples of each class evenly among its clients."""
        per_class = class_sizes(dataset, "shards")
        enough(dataset, per_class.sum(), self.clients)
        check_shards("classes", self.classes, self.clients, len(per_class), dataset.name)
        rng = key.fold("holders").numpy()
        holders = assign_classes(self.clients, len(per_class), self.classes, rng)
        return by_counts(labels_of(dataset), spread(per_class, holders), key)


@dataclass(frozen=True)
class OneClass(Partition):
    """Gives each client samples of one class only: client i holds class i mod the number of classes."""

    clients: int = 10

    def __post_init__(self) -> None:
        at_least("clients", self.clients, 1)

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Divide each class evenly among its clients."""
        per_class = class_sizes(dataset, "one_class")
        total = len(per_class)
        enough(dataset, per_class.sum(), self.clients)
        if self.clients < total:
            raise SpecError(
                f"one_class needs at least one client per class, {total} for {dataset.name}, "
                f"got {self.clients}; use clients = {total} or more"
            )
        holders = np.arange(self.clients)[:, None] % total == np.arange(total)
        return by_counts(labels_of(dataset), spread(per_class, holders), key)


@dataclass(frozen=True)
class Quantity(Partition):
    """Quantity skew: draws the clients' sizes from Dirichlet(beta); the labels are IID."""

    clients: int = 100
    beta: float = 0.5
    min_size: int = 1

    def __post_init__(self) -> None:
        at_least("clients", self.clients, 1)
        at_least("min_size", self.min_size, 1)
        positive(self.beta, "give a few clients almost everything, large ones give similar sizes")

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Divide the samples once; then clients below `min_size`, by id, take from the largest client."""
        count = len(dataset.y_train)
        enough(dataset, count, self.clients, self.min_size)
        sizes = skewed(np.array([count]), self.clients, self.beta, key.fold("shares").numpy())
        return by_counts(np.zeros(count, np.int64), top_up(sizes, self.min_size), key)


@dataclass(frozen=True)
class Natural(Partition):
    """Turns each natural group of the data set, such as a hospital, into a client."""

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Give each group its own client."""
        groups = dataset.groups_train
        if groups is None:
            raise SpecError(
                f"{dataset.name} has no natural clients; use another kind of partition, or a data set that "
                f"has them: heart_disease, or your own with one file a site or task.site"
            )
        sizes = np.bincount(groups, minlength=len(dataset.group_names))
        if not sizes.all():
            raise SpecError(
                f"group {sizes.argmin()} of {dataset.name} has no training samples; number groups 0, 1, ..."
            )
        return DealtShards.by_owner(groups, len(sizes), key.fold("order"), dataset.group_names)


@dataclass(frozen=True)
class Synthetic(Partition):
    """Draws `samples` per client with replacement, for populations larger than the data set."""

    clients: int = 1000
    samples: int = 50

    def __post_init__(self) -> None:
        at_least("clients", self.clients, 1)
        at_least("samples", self.samples, 1)

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Draw nothing yet: a client's samples are drawn on access."""
        return DrawnShards(self.clients, self.samples, len(dataset.y_train), key.fold("client"))


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
    "kl_band": KlBand,
}
