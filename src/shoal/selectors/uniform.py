"""Selectors that treat all clients equally."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from shoal.core.population import Population
from shoal.core.selector import Selector
from shoal.core.types import Cohort, Moment, Tree
from shoal.selectors.cohort_size import check_population, check_size, cohort_size

SMALL = 20  # up to this population, all clients take part unless the spec gives a number


@dataclass(frozen=True)
class Uniform(Selector):
    """Samples a number (`count`) or share (`fraction`) of the clients uniformly, without replacement."""

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

    def sized(self, population: int) -> Uniform:
        """See `Selector`."""
        given = self.count is not None or self.fraction is not None
        return self if given or population > SMALL else replace(self, fraction=1.0)

    def check(self, population: int) -> None:
        """See `Selector`."""
        check_population(self.count, population)


@dataclass(frozen=True)
class All(Selector):
    """Selects every available client."""

    def select(
        self, state: Any, available: Population, reports: Mapping[int, Tree], moment: Moment
    ) -> Cohort:
        """See `Selector`."""
        return Cohort(tuple(available), {}, len(available))
