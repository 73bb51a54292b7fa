"""The fastest way to visit clients, found by trying.

All ways give the same bits, so nothing but time depends on the choice. The rounds of a run are the trial:
each way has its turns, and the one that took the least time for a sample stays. A way whose exchanges are
over before worker processes could be woken stays without a trial.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from shoal.core.collusion import Way
from shoal.core.engine import TRAINING, Delivery, Work
from shoal.core.key import Key
from shoal.core.types import Cohort, Tree

TURNS = 3  # that count, of each way; the least time is compared, as one after a fork is slow
SHORT = 0.02  # seconds of an exchange that no other way is worth a trial for
CLEARLY = 0.9  # of the first way's time: another one has to be as fast, or the first stays
LONG = 0.5  # seconds of an exchange whose first turn counts: warming up is little beside it


class Auto:
    """Visits clients in the way that turns out to be the fastest."""

    def __init__(self, ways: Sequence[Way], samples: Callable[[Sequence[int]], Sequence[int]]) -> None:
        self._ways, self._samples = list(ways), samples
        self._times: list[list[float]] = [[] for _ in ways]  # seconds a sample, of turns that count
        self._warm = [False for _ in ways]
        self._now = 0  # whose turn it is

    @property
    def way(self) -> Way:
        """The one in use."""
        return self._ways[self._now]

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""
        if work.verb not in TRAINING or len(self._ways) == 1:
            yield from self.way.exchange(work, cohort, message, key)
            return
        started = time.perf_counter()
        yield from self.way.exchange(work, cohort, message, key)
        self._took(time.perf_counter() - started, sum(self._samples(cohort.ids)))

    def close(self) -> None:
        """See `Engine`."""
        for way in self._ways:
            way.close()

    def _took(self, seconds: float, samples: int) -> None:
        """Take in how long an exchange was, and decide whose turn is next."""
        now, known = self._now, self._warm[self._now]
        self._warm[now] = True
        if not known and seconds <= LONG:
            return  # its next turn counts
        self._times[now].append(seconds / max(samples, 1))
        if now == 0 and seconds < SHORT:
            self._keep(0)
        elif min(map(len, self._times)) >= (1 if seconds > LONG else TURNS):
            least = [min(times) for times in self._times]
            fastest = least.index(min(least))
            self._keep(fastest if least[fastest] < CLEARLY * least[0] else 0)
        else:
            self._now = (now + 1) % len(self._ways)

    def _keep(self, chosen: int) -> None:
        for i, way in enumerate(self._ways):
            if i != chosen:
                way.close()
        self._ways, self._now = [self._ways[chosen]], 0
