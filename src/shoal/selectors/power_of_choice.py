"""Power-of-Choice: the clients with the highest losses among some candidates.

Cho, Wang, Joshi: Towards Understanding Biased Client Selection in Federated Learning, AISTATS 2022
(Power-of-Choice).

    candidates: d clients, drawn at random;  cohort: the m of them with the highest loss

Departures: candidates are not asked for their losses; the loss of a client's last training counts. Clients
that have not trained yet come first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shoal.core.errors import SpecError
from shoal.core.population import Population
from shoal.core.selector import Selector
from shoal.core.types import Cohort, Moment, Reply, Report
from shoal.selectors.cohort_size import check_population, check_size, cohort_size


@dataclass(frozen=True)
class PowerOfChoice(Selector):
    """Draws `candidates` times as many clients as needed, and selects those with the highest losses."""

    count: int | None = None
    fraction: float | None = None
    candidates: float = 2.0

    def __post_init__(self) -> None:
        check_size(self.count, self.fraction)
        if not 1 <= self.candidates < math.inf:
            raise SpecError(f"candidates must be at least 1, got {self.candidates:g}; 2 draws twice as many")

    def init(self) -> Mapping[int, float]:
        """See `Selector`. The state is the last loss of each client."""
        return {}

    def select(
        self, state: Any, available: Population, reports: Mapping[int, Report], moment: Moment
    ) -> Cohort:
        """See `Selector`."""
        size = cohort_size(self.count, self.fraction, len(available))
        drawn = min(len(available), math.ceil(self.candidates * size))
        picked = moment.key.numpy().choice(len(available), drawn, replace=False, shuffle=False)
        some = [available[i] for i in picked.tolist()]
        highest = sorted(some, key=lambda client: (-state.get(client, math.inf), client))[:size]
        return Cohort(tuple(sorted(highest)), {}, len(available))

    def observe(self, state: Any, client: int, reply: Reply, seconds: float) -> Mapping[int, float]:
        """See `Selector`."""
        loss = float(reply.metrics.get("train_loss", math.nan))
        return {**state, client: loss} if math.isfinite(loss) else state

    def check(self, population: int) -> None:
        """See `Selector`."""
        check_population(self.count, population)
