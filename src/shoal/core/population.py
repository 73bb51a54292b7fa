"""Client ids stored as ranges: a million clients cost no more than ten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

Population = Sequence[int]  # ids of the clients that can be reached; often a `range`


class Spans(Sequence[int]):
    """Ids in ascending order, stored as ranges; time and memory depend on the number of ranges only."""

    def __init__(self, firsts: np.ndarray, ends: np.ndarray) -> None:
        """`firsts` and `ends` (exclusive) [ranges] int64: ascending, non-overlapping, non-empty ranges."""
        self.firsts, self.ends = firsts, ends
        self._counted = np.cumsum(ends - firsts)  # ids up to the end of each range

    @classmethod
    def of(cls, ids: Population) -> Spans:
        """Build the ranges from ids in any order."""
        if isinstance(ids, Spans):
            return ids
        if isinstance(ids, range) and ids.step == 1:
            return cls(*(np.array([edge] if ids else [], np.int64) for edge in (ids.start, ids.stop)))
        found = np.unique(np.array(ids, np.int64))
        starts = np.flatnonzero(np.diff(found, prepend=-2) > 1)
        return cls(found[starts], found[np.append(starts[1:], len(found))[: len(starts)] - 1] + 1)

    def common(self, other: Spans) -> Spans:
        """The intersection of two sets of ids."""
        edges = np.unique(np.concatenate([self.firsts, self.ends, other.firsts, other.ends]))
        both = self._covers(edges[:-1]) & other._covers(edges[:-1])
        return Spans(edges[:-1][both], edges[1:][both])

    def _covers(self, ids: np.ndarray) -> np.ndarray:
        """[ids] bool: which of the given ids are contained."""
        last = np.searchsorted(self.firsts, ids, side="right") - 1
        covered: np.ndarray = last >= 0
        covered[covered] = ids[covered] < self.ends[last[covered]]
        return covered

    def __len__(self) -> int:
        return int(self._counted[-1]) if len(self._counted) else 0

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return tuple(self[i] for i in range(len(self))[position])
        place = range(len(self))[position]
        span = int(np.searchsorted(self._counted, place, side="right"))
        return int(self.ends[span] - self._counted[span]) + place

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(map(range, self.firsts.tolist(), self.ends.tolist()))

    def __contains__(self, client: object) -> bool:
        return isinstance(client, int) and bool(self._covers(np.array([client]))[0])
