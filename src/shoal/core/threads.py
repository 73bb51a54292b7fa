"""Threads that all parts of a process share.

Kernels and LAPACK release the GIL. One thread does all the work of a client, or of another independent item,
so the number of threads does not change a single bit of the results.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

RANGES = 8  # of clients per thread: with more, threads wait less for each other, but each costs 20 us
LEAST = 2_000_000  # samples times parameters in a range: running it then takes longer than starting it

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=4)
def other_threads(threads: int) -> ThreadPoolExecutor:
    """A pool of all threads except the main one; `threads` is at least 2."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="shoal")


if hasattr(os, "register_at_fork"):  # a forked process has a copy of the pool, but none of its threads
    os.register_at_fork(after_in_child=other_threads.cache_clear)


def parallel_map(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int | None = None
) -> list[Result]:
    """`work(item)` for each item, in order; threads, by default one per core, take one item after another."""
    threads = min(threads or cores(), len(items))
    if threads <= 1:
        return [work(item) for item in items]
    waiting, done = deque(enumerate(items)), dict[int, Result]()

    def take() -> None:
        while True:
            try:
                place, item = waiting.popleft()
            except IndexError:
                return
            done[place] = work(item)

    others = [other_threads(threads).submit(take) for _ in range(threads - 1)]
    take()
    for other in others:
        if not other.cancel():  # one that has not started has nothing left to do, and may be waiting for us
            other.result()
    return [done[place] for place in range(len(items))]


def parallel_pair(first: Callable[[], Item], second: Callable[[], Result]) -> tuple[Item, Result]:
    """The results of two functions that run in parallel."""
    functions: list[Callable[[], Any]] = [first, second]
    one, two = parallel_map(lambda function: function(), functions)
    return one, two


def parallel_ranges(work: np.ndarray, threads: int, some: Callable[[int, int], None], clients: int) -> None:
    """Run all clients in threads, which take one range of clients after another, the longest first.

    `some(first, last)` runs the clients `first` to `last` (exclusive); `work` [clients] is the work of each,
    in samples times parameters.
    """
    threads = min(threads, clients)
    if threads == 1:
        some(0, clients)
    else:
        parallel_map(lambda each: some(*each), ranges(work, threads), threads)


def ranges(work: np.ndarray, threads: int) -> list[tuple[int, int]]:
    """Consecutive ranges of clients with about equal work, the longest first."""
    total = np.cumsum(work)
    count = max(threads, min(RANGES * threads, int(total[-1] / LEAST)))
    bounds = np.searchsorted(total - work / 2, total[-1] * np.arange(1, count) / count)
    found = [(first, last) for first, last in pairwise([0, *bounds.tolist(), len(work)]) if first < last]
    return sorted(found, key=lambda some: -work[slice(*some)].sum())
