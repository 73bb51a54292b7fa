"""Selection of one client after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shoal.core.population import Population
from shoal.core.selector import Selector
from shoal.core.types import Cohort, Moment, Report
from shoal.selectors.cohort_size import check_population, check_size, cohort_size


@dataclass(frozen=True)
class RoundRobin(Selector):
    """Selects clients in the order of their ids, continuing in each round where the last one ended."""

    count: int | None = None
    fraction: float | None = None

    def __post_init__(self) -> None:
        check_size(self.count, self.fraction)

    def select(
        self, state: Any, available: Population, reports: Mapping[int, Report], moment: Moment
    ) -> Cohort:
        """See `Selector`. The choice depends only on the round, as long as the same clients are available."""
        size = cohort_size(self.count, self.fraction, len(available))
        first = moment.round * size
        picked = {(first + place) % len(available) for place in range(size)}
        return Cohort(tuple(sorted(available[i] for i in picked)), {}, len(available))

    def check(self, population: int) -> None:
        """See `Selector`."""
        check_population(self.count, population)
