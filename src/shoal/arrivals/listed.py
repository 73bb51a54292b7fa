"""Arrivals from a list of the rounds in which clients join and leave."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from shoal.arrivals.stays import FOREVER, Stay, check_client, check_round, timetable_of
from shoal.core.arrivals import Arrivals, Timetable
from shoal.core.errors import SpecError

Change = tuple[int, bool]  # a round, counted from 0, and whether clients join in it


@dataclass(frozen=True)
class Event:
    """Clients that join or leave in a round; `clients` are ids and ranges such as "3,5,10-19"."""

    round: int
    clients: str

    def __post_init__(self) -> None:
        check_round("round", self.round)
        self.ranges()

    def ranges(self) -> list[tuple[int, int]]:
        """The first client of each range, and its end (exclusive)."""
        found = []
        for part in self.clients.split(","):
            match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
            if match is None:
                raise SpecError(
                    f'clients must be ids and ranges such as "3,5,10-19", got {self.clients!r}, '
                    f"of which {part.strip()!r} is neither"
                )
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                raise SpecError(f"a range of clients must not fall, got {part.strip()}; write {last}-{first}")
            found.append((first, last + 1))
        return found


@dataclass(frozen=True)
class ListedArrivals(Arrivals):
    """Clients join and leave in the listed rounds; clients that are not listed are always present.

    A client whose first event is a join is absent until then. It is present in the round in which it joins,
    and absent in the round in which it leaves.
    """

    join: tuple[Event, ...] = ()
    leave: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        if not self.join and not self.leave:
            raise SpecError('give join or leave, such as join = [{round = 31, clients = "50-99"}]')

    def timetable(self, clients: int) -> Timetable:
        """See `Arrivals`. Clients with the same events are handled together, whatever their number."""
        told = [
            (first, end, event.round - 1, joins)
            for joins, events in ((True, self.join), (False, self.leave))
            for event in events
            for first, end in event.ranges()
        ]
        for _, end, _, _ in told:
            check_client(end - 1, clients)
        edges = np.unique([0, clients, *(edge for first, end, _, _ in told for edge in (first, end))])
        changes: list[list[Change]] = [[] for _ in edges[1:]]
        for first, end, round, joins in told:
            for place in range(*np.searchsorted(edges, (first, end)).tolist()):
                changes[place].append((round, joins))
        groups = zip(pairwise(edges.tolist()), changes, strict=True)
        return timetable_of([stay for group, some in groups for stay in _stays(*group, sorted(some))])


def _stays(first: int, end: int, changes: Sequence[Change]) -> Iterator[Stay]:
    """The stays of clients with these changes, in the order of rounds."""
    there, since = not changes or not changes[0][1], 0
    for (round, _), (later, _) in pairwise(changes):
        if round == later:
            raise SpecError(
                f"client {first} has two events in round {round + 1}; "
                "it can join or leave only once in a round"
            )
    for round, joins in changes:
        if joins and there:
            raise SpecError(
                f"client {first} joins in round {round + 1} but is there already, since round {since + 1}; "
                "let it leave in between"
            )
        if not joins and not there:
            raise SpecError(
                f"client {first} leaves in round {round + 1} but has left already; let it join in between"
            )
        if not joins and not round:
            raise SpecError(
                f"client {first} leaves in round 1, before it was there; let it join later instead"
            )
        if not joins:
            yield Stay(first, end, since, round)
        there, since = joins, round
    if there:
        yield Stay(first, end, since, FOREVER)
