"""Oort: selection of clients that are both useful and fast.

Lai, Zhu, Madhyastha, Chowdhury: Oort: Efficient Federated Learning via Guided Participant Selection,
OSDI 2021.

    utility = samples x loss x (T / t)^alpha if t > T      (the statistical times the system utility)

t is the duration of the client's last reply, T the `quantile` of these durations. A share `explore` of the
cohort is drawn from clients that have not trained yet; the others are those with the highest utility.

Departures: the loss is the mean training loss, where Oort takes the root mean square over samples; there is
no bonus for clients that have not been selected for long, no clipping of extreme utilities, and the share of
exploration is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shoal.core.errors import SpecError
from shoal.core.population import Population
from shoal.core.selector import Selector
from shoal.core.types import Cohort, Moment, Reply, Report
from shoal.selectors.cohort_size import check_population, check_size, cohort_size


class OortClient(NamedTuple):
    """What is known about a client that has trained."""

    utility: float  # the statistical utility
    seconds: float


@dataclass(frozen=True)
class Oort(Selector):
    """Selects clients with high losses and fast replies, and some that have not trained yet."""

    count: int | None = None
    fraction: float | None = None
    explore: float = 0.2
    alpha: float = 2.0
    quantile: float = 0.5

    def __post_init__(self) -> None:
        check_size(self.count, self.fraction)
        for name in ("explore", "quantile"):
            if not 0 <= getattr(self, name) <= 1:
                raise SpecError(f"{name} must be a share in [0, 1], got {getattr(self, name):g}")
        if not 0 <= self.alpha < math.inf:
            raise SpecError(f"alpha must be at least 0, got {self.alpha:g}; 0 ignores how long clients take")

    def init(self) -> Mapping[int, OortClient]:
        """See `Selector`."""
        return {}

    def select(
        self, state: Any, available: Population, reports: Mapping[int, Report], moment: Moment
    ) -> Cohort:
        """See `Selector`."""
        size = cohort_size(self.count, self.fraction, len(available))
        known = [client for client in state if client in available]
        usual = float(np.quantile([state[c].seconds for c in known], self.quantile)) if known else 0.0
        worth = {c: self._utility(OortClient(*state[c]), usual) for c in known}
        best = sorted(known, key=lambda client: (-worth[client], client))
        kept = best[: size - round(self.explore * size)]
        taken = set(kept)
        drawn = moment.key.numpy().permutation(len(available)).tolist()
        unknown = [available[i] for i in drawn if available[i] not in state]
        rest = [client for client in (*unknown, *best) if client not in taken]
        return Cohort(tuple(sorted([*kept, *rest[: size - len(kept)]])), {}, len(available))

    def _utility(self, seen: OortClient, usual: float) -> float:
        late = seen.seconds > usual > 0
        return float(seen.utility * ((usual / seen.seconds) ** self.alpha if late else 1.0))

    def observe(self, state: Any, client: int, reply: Reply, seconds: float) -> Mapping[int, OortClient]:
        """See `Selector`."""
        loss = float(reply.metrics.get("train_loss", math.nan))
        samples = 1.0 if reply.weight is None else float(reply.weight)
        return {**state, client: OortClient(samples * loss, seconds)} if math.isfinite(loss) else state

    def check(self, population: int) -> None:
        """See `Selector`."""
        check_population(self.count, population)
