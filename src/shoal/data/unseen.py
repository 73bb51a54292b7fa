"""A partition with classes that only newcomers hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.core.data import Dataset, Partition, Shards
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.data.class_counts import assign_classes, skewed, spread, top_up
from shoal.data.partition_steps import (
    at_least,
    by_counts,
    check_shards,
    class_sizes,
    enough,
    labels_of,
    positive,
)


@dataclass(frozen=True)
class Unseen(Partition):
    """Gives the last `classes` classes only to the last `newcomers` clients, and the others to the rest."""

    clients: int = 100
    newcomers: int = 50
    classes: int = 5
    beta: float = 0.5
    min_size: int = 1
    shards: int | None = None  # classes per client, instead of a Dirichlet draw

    def __post_init__(self) -> None:
        at_least("clients", self.clients, 2)
        at_least("newcomers", self.newcomers, 1)
        at_least("classes", self.classes, 1)
        at_least("min_size", self.min_size, 1)
        positive(self.beta, "skew the labels strongly, large ones hardly")
        if self.newcomers >= self.clients:
            raise SpecError(
                f"newcomers must be fewer than clients = {self.clients}, got {self.newcomers}; "
                f"the others hold the known classes"
            )
        if self.shards is not None:
            at_least("shards", self.shards, 1)
            for name in ("beta", "min_size"):
                if getattr(self, name) != getattr(Unseen, name):
                    raise SpecError(
                        f"give shards or {name}, not both, got shards = {self.shards} and {name} = "
                        f"{getattr(self, name):g}; {name} belongs to the Dirichlet draw that shards replaces"
                    )

    def split(self, dataset: Dataset, key: Key) -> Shards:
        """Divide known and unseen classes separately, by the rule of `Dirichlet` or of `LabelShards`."""
        per_class = class_sizes(dataset, "unseen")
        enough(dataset, per_class.sum(), self.clients)
        known, veterans = len(per_class) - self.classes, self.clients - self.newcomers
        if known < 1:
            raise SpecError(
                f"classes, the number of unseen classes, must be below the {len(per_class)} of "
                f"{dataset.name}, got {self.classes}"
            )
        parts = {
            "known": (slice(0, veterans), slice(0, known)),
            "unseen": (slice(veterans, self.clients), slice(known, len(per_class))),
        }
        counts = np.zeros((self.clients, len(per_class)), np.int64)
        for name, (who, which) in parts.items():
            clients, draw = who.stop - who.start, key.fold(name)
            enough(dataset, per_class[which].sum(), clients, self.min_size)
            if self.shards is None:
                shares = skewed(per_class[which], clients, self.beta, draw.numpy())
                counts[who, which] = top_up(shares, self.min_size)
            else:
                total = which.stop - which.start
                check_shards("shards", self.shards, clients, total, f"the {name} part of {dataset.name}")
                counts[who, which] = assign_classes(clients, total, self.shards, draw.numpy())
        if self.shards is not None:
            counts = spread(per_class, counts.astype(bool))
        return by_counts(labels_of(dataset), counts, key)
