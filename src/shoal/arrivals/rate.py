"""Arrivals at a constant rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from shoal.core.arrivals import Arrivals, Timetable
from shoal.core.errors import SpecError


@dataclass(frozen=True)
class RateArrivals(Arrivals):
    """Clients join in the order of their ids: `initial` at the start, then `rate` per round on average.

    After r rounds, floor(r `rate`) of them have joined. Each leaves for good after `stay` rounds.
    """

    initial: int
    rate: float
    stay: int = 0  # rounds; 0: to the end

    def __post_init__(self) -> None:
        for name, value in (("initial", self.initial), ("stay", self.stay)):
            if value < 0:
                raise SpecError(f"{name} must be at least 0, got {value}")
        if not 0 < self.rate < math.inf:
            raise SpecError(f"rate must be > 0, got {self.rate:g}; 0.5 is a newcomer in every second round")

    def timetable(self, clients: int) -> Timetable:
        """See `Arrivals`."""
        if self.initial > clients:
            raise SpecError(
                f"initial = {self.initial} is more than the {clients} clients of the partition; "
                f"use at most {clients}, or raise partition.clients"
            )
        rate = Fraction(repr(self.rate))  # the decimal as written, so that 100 times 0.29 is 29

        def joined(round: int) -> int:
            return min(clients, self.initial + math.floor(round * rate)) if round >= 0 else 0

        return lambda round: range(joined(round - self.stay) if self.stay else 0, joined(round))
