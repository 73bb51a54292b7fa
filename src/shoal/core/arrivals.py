"""The protocol of arrivals: which clients are there in which round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from shoal.core.population import Population

Timetable = Callable[[int], Population]  # from a round, counted from 0, to the clients that are there in it


class Arrivals(ABC):
    """A rule that says when clients join and leave."""

    @abstractmethod
    def timetable(self, clients: int) -> Timetable:
        """Who is there in each round, of clients with the ids 0 to `clients` - 1; ids are in rising order.

        The cost of a round must not grow with the number of clients: a `range` or `Spans` takes no more for a
        million than for ten. Raises `SpecError` if the rule does not suit these clients.
        """
