"""Selectors that treat all clients alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shoal.core.selector import Population, Selector
from shoal.core.types import Cohort, Moment, Tree
from shoal.selectors.size import check_population, check_size, cohort_size


@dataclass(frozen=True)
class Uniform(Selector):
    """A number (`count`) or share (`fraction`) of the clients, each equally likely, without replacement."""

    count: int | None = None
    fraction: float | None = None

    def __post_init__(self) -> None:
        check_size(self.count, self.fraction)

    def select(
        self, state: Any, available: Population, reports: Mapping[int, Tree], moment: Moment
    ) -> Cohort:
        """See `Selector`."""
        size = cohort_size(self.count, self.fraction, len(available))
        picked = moment.key.numpy().choice(len(available), size, replace=False, shuffle=False)
        return Cohort(tuple(sorted(available[i] for i in picked.tolist())), {}, len(available))

    def check(self, population: int) -> None:
        """See `Selector`."""
        check_population(self.count, population)


@dataclass(frozen=True)
class All(Selector):
    """Every client that can be reached."""

    def select(
        self, state: Any, available: Population, reports: Mapping[int, Tree], moment: Moment
    ) -> Cohort:
        """See `Selector`."""
        return Cohort(tuple(available), {}, len(available))
