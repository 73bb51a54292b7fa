"""Selection of the clients that expect to reply first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from shoal.core.population import Population
from shoal.core.selector import Selector
from shoal.core.types import Cohort, Moment, Report
from shoal.selectors.cohort_size import check_population, check_size, cohort_size


@dataclass(frozen=True)
class Fastest(Selector):
    """Selects the clients that expect to reply first, according to their device reports."""

    count: int | None = None
    fraction: float | None = None

    asks_report: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_size(self.count, self.fraction)

    def select(
        self, state: Any, available: Population, reports: Mapping[int, Report], moment: Moment
    ) -> Cohort:
        """See `Selector`."""
        size = cohort_size(self.count, self.fraction, len(available))
        expected = {client: reports[client].total if client in reports else math.inf for client in available}
        first = sorted(expected, key=lambda client: (expected[client], client))[:size]
        return Cohort(tuple(sorted(first)), {}, len(available))

    def check(self, population: int) -> None:
        """See `Selector`."""
        check_population(self.count, population)
