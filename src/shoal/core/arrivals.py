"""The protocol of arrivals: which clients are present in each round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from shoal.core.population import Population

Timetable = Callable[[int], Population]  # maps a round, counted from 0, to the clients that are present


class Arrivals(ABC):
    """A rule that says when clients join and leave."""

    @abstractmethod
    def timetable(self, clients: int) -> Timetable:
        """The clients present in each round, out of the ids 0 to `clients` - 1, in ascending order.

        The cost of a round must not grow with the number of clients: a `range` or `Spans` costs no more for a
        million than for ten. Raises `SpecError` if the rule does not work for this number of clients.
        """
