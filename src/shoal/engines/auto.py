"""Finds the fastest way to run clients by measuring.

All ways give the same bits, so the choice affects only the time. The first rounds of a run are the trial:
each way gets its turns, and the one that takes the least time per sample is kept. If exchanges take less time
than waking worker processes would, the first way is kept without a trial.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence

from shoal.core.collusion import Way
from shoal.core.engine import TRAINING, Delivery, Work
from shoal.core.key import Key
from shoal.core.types import Cohort, Tree

TURNS = 3  # that are measured, for each way; the shortest times are compared
SETTLED = 16  # exchanges after which a way that was preferred to the first one is compared with it again
SHORT = 0.02  # seconds: if exchanges are shorter, no other way is tried
CLEARLY = 0.9  # another way must take less than this fraction of the first way's time to replace it
LONG = 0.5  # seconds: for longer exchanges, one turn after the warm-up is enough
PATIENT = 5  # such turns in which another way may prove fast enough: new processes copy memory at first

_Time = tuple[float, float]  # of an exchange: seconds, and seconds per sample
_Trial = Generator[int, _Time, int]


class Auto:
    """Runs clients in the way that turns out to be the fastest."""

    def __init__(self, ways: Sequence[Way], samples: Callable[[Sequence[int]], Sequence[int]]) -> None:
        self._ways, self._samples = list(ways), samples
        self._trial = self._compared()
        self._now = next(self._trial)  # the way whose turn it is

    @property
    def way(self) -> Way:
        """The way in use."""
        return self._ways[self._now]

    @property
    def settled(self) -> bool:
        """Whether the trial is over."""
        return len(self._ways) == 1

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
        """Record how long an exchange took, and decide which way is next."""
        try:
            self._now = self._trial.send((seconds, seconds / max(samples, 1)))
        except StopIteration as end:
            self._keep(end.value)

    def _compared(self) -> _Trial:
        """Yields the way whose turn is next and receives how long it took; returns the way that is kept.

        The first way has all its turns before another one starts: once worker processes are forked, every
        memory page that it writes to has to be copied first.
        """
        first, longest = yield from self._turns(0)
        if first is None:
            return 0
        for other in range(1, len(self._ways)):
            second, _ = yield from self._turns(other, CLEARLY * first)
            assert second is not None
            if second >= CLEARLY * first:
                continue
            if longest > LONG:
                return other
            for _ in range(SETTLED):  # what grows at first, such as clients' memories, slowed the first way
                yield other
            again, _ = yield from self._turns(0)
            later, _ = yield from self._turns(other)
            if again is not None and later is not None and later < CLEARLY * again:
                return other
        return 0

    def _turns(self, way: int, enough: float = math.inf) -> Generator[int, _Time, tuple[float | None, float]]:
        """The least seconds per sample, None if exchanges are too short; and the seconds of the longest one.

        If exchanges are long, the turns end as soon as one is fast enough.
        """
        yield way  # only a warm-up, which may compile or load something
        times: list[float] = []
        longest = 0.0
        while len(times) < PATIENT:
            seconds, each = yield way
            longest = max(longest, seconds)
            times.append(each)
            if way == 0 and seconds < SHORT:
                return None, longest
            if each < enough if seconds > LONG else len(times) >= TURNS:
                break
        return min(times), longest

    def _keep(self, chosen: int) -> None:
        for i, way in enumerate(self._ways):
            if i != chosen:
                way.close()
        self._ways, self._now = [self._ways[chosen]], 0
