"""Finds the fastest way to run clients by measuring.

All runners give the same bits, so the choice affects only the time. The first rounds of a run are the trial:
each runner gets its turns, and the one that takes the least time per sample is kept. If exchanges take less
time than waking worker processes would, the first runner is kept without a trial.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence

from shoal.core.collusion import ClientRunner
from shoal.core.engine import TRAINING, Delivery, Work
from shoal.core.key import Key
from shoal.core.types import Cohort, Tree

TURNS = 3  # of each runner that are measured; the shortest times are compared
RECHECK_AFTER = 16  # exchanges after which a runner that replaced the first one is compared with it again
SHORT_SECONDS = 0.02  # if exchanges are shorter, no other runner is tried
REQUIRED_RATIO = 0.9  # another runner must take less than this fraction of the first one's time to replace it
LONG_SECONDS = 0.5  # for longer exchanges, one turn after the warm-up is enough
MOST_LONG_TURNS = 5  # of another runner with long exchanges: new processes copy memory at first

_Time = tuple[float, float]  # of an exchange: seconds, and seconds per sample
_Trial = Generator[int, _Time, int]


class Auto:
    """Runs clients with the runner that turns out to be the fastest."""

    def __init__(
        self, runners: Sequence[ClientRunner], samples: Callable[[Sequence[int]], Sequence[int]]
    ) -> None:
        self._runners, self._samples = list(runners), samples
        self._trial = self._compared()
        self._now = next(self._trial)  # whose turn it is

    @property
    def runner(self) -> ClientRunner:
        """The runner in use."""
        return self._runners[self._now]

    @property
    def settled(self) -> bool:
        """Whether the trial is over."""
        return len(self._runners) == 1

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""
        if work.verb not in TRAINING or len(self._runners) == 1:
            yield from self.runner.exchange(work, cohort, message, key)
            return
        started = time.perf_counter()
        yield from self.runner.exchange(work, cohort, message, key)
        self._took(time.perf_counter() - started, sum(self._samples(cohort.ids)))

    def close(self) -> None:
        """See `Engine`."""
        for runner in self._runners:
            runner.close()

    def _took(self, seconds: float, samples: int) -> None:
        """Record how long an exchange took, and decide which runner is next."""
        try:
            self._now = self._trial.send((seconds, seconds / max(samples, 1)))
        except StopIteration as end:
            self._keep(end.value)

    def _compared(self) -> _Trial:
        """Yields the runner whose turn is next and receives how long it took; returns the one that is kept.

        The first one has all its turns before another one starts: once worker processes are forked, every
        memory page that it writes to has to be copied first.
        """
        first, longest = yield from self._turns(0)
        if first is None:
            return 0
        for other in range(1, len(self._runners)):
            second, _ = yield from self._turns(other, REQUIRED_RATIO * first)
            assert second is not None
            if second >= REQUIRED_RATIO * first:
                continue
            if longest > LONG_SECONDS:
                return other
            for _ in range(RECHECK_AFTER):  # growing client memories slow the first rounds
                yield other
            again, _ = yield from self._turns(0)
            later, _ = yield from self._turns(other)
            if again is not None and later is not None and later < REQUIRED_RATIO * again:
                return other
        return 0

    def _turns(
        self, runner: int, enough: float = math.inf
    ) -> Generator[int, _Time, tuple[float | None, float]]:
        """The least seconds per sample, None if exchanges are too short; and the seconds of the longest one.

        If exchanges are long, the turns end as soon as one is fast enough.
        """
        yield runner  # only a warm-up, which may compile or load something
        times: list[float] = []
        longest = 0.0
        while len(times) < MOST_LONG_TURNS:
            seconds, each = yield runner
            longest = max(longest, seconds)
            times.append(each)
            if runner == 0 and seconds < SHORT_SECONDS:
                return None, longest
            if each < enough if seconds > LONG_SECONDS else len(times) >= TURNS:
                break
        return min(times), longest

    def _keep(self, chosen: int) -> None:
        for i, runner in enumerate(self._runners):
            if i != chosen:
                runner.close()
        self._runners, self._now = [self._runners[chosen]], 0
