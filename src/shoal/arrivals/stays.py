"""Stays: clients that are there from one round to another. What lists and files of arrivals come down to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from shoal.core.arrivals import Timetable
from shoal.core.errors import SpecError
from shoal.core.population import Spans

FOREVER = np.iinfo(np.int64).max  # the round in which a client leaves that never does


class Stay(NamedTuple):
    """Clients `first` to `end` (exclusive) are there from round `join` to `leave` (exclusive), from 0."""

    first: int
    end: int
    join: int = 0
    leave: int = FOREVER


def timetable_of(stays: Sequence[Stay]) -> Timetable:
    """Who is there in a round: those of whom a stay lasts. Stays of a client must not overlap."""
    firsts, ends, joins, leaves = np.array(sorted(stays), np.int64).reshape(-1, 4).T
    changes = np.unique(np.concatenate([joins, leaves]))

    @lru_cache(maxsize=4)  # of the rounds between two changes, and of the first ones
    def after(change: int) -> Spans:
        round = changes[change - 1] if change else -1
        there = (joins <= round) & (round < leaves)
        return Spans(firsts[there], ends[there])

    return lambda round: after(int(np.searchsorted(changes, round, side="right")))


def check_round(name: str, round: int) -> None:
    """Raise `SpecError` if this is no round of a run."""
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
