"""Stays: intervals of rounds in which clients are present. Lists and files of arrivals reduce to these."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from shoal.core.arrivals import Timetable
from shoal.core.errors import SpecError
from shoal.core.population import Spans

FOREVER = np.iinfo(np.int64).max  # the leaving round of a client that never leaves


class Stay(NamedTuple):
    """Clients `first` to `end` (exclusive) are present in rounds `join` to `leave` (exclusive), from 0."""

    first: int
    end: int
    join: int = 0
    leave: int = FOREVER


def timetable_of(stays: Sequence[Stay]) -> Timetable:
    """The timetable of clients with these stays. The stays of a client must not overlap."""
    firsts, ends, joins, leaves = np.array(sorted(stays), np.int64).reshape(-1, 4).T
    changes = np.unique(np.concatenate([joins, leaves]))

    @lru_cache(maxsize=4)  # for the rounds since the last change, and for the first ones
    def after(change: int) -> Spans:
        round = changes[change - 1] if change else -1
        there = (joins <= round) & (round < leaves)
        return Spans(firsts[there], ends[there])

    return lambda round: after(int(np.searchsorted(changes, round, side="right")))


def check_round(name: str, round: int) -> None:
    """Raise `SpecError` if this is not a valid round."""
    if round < 1:
        raise SpecError(
            f"{name} must be at least 1, got {round}; rounds are counted from 1, as in the records"
        )


def check_client(client: int, clients: int) -> None:
    """Raise `SpecError` if there is no such client."""
    if not 0 <= client < clients:
        raise SpecError(
            f"there is no client {client}; ids are 0 to {clients - 1}, as many as the partition has"
        )
