"""The resources used by a contestant with its child processes, and by other programs at the same time."""

from __future__ import annotations

import os
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
_BUSY = (0, 1, 2, 5, 6, 7)  # of /proc/stat: user, nice, system, irq, softirq, steal


class Use(NamedTuple):
    """The resource usage of this process and all its descendants."""

    peak_rss_mb: float  # the sum of the peaks; shared memory counts in each process
    seconds: float  # of processor time


def used() -> Use:
    """The usage so far. Without /proc, only children that have ended count."""
    if not (PROC / "self/stat").exists():
        both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        unit = 2**20 if sys.platform == "darwin" else 2**10
        return Use(
            sum(use.ru_maxrss for use in both) / unit, sum(use.ru_utime + use.ru_stime for use in both)
        )
    peak = ticks = 0
    for pid in _family():
        with suppress(OSError):  # it has ended in between
            lines = (PROC / pid / "status").read_text().splitlines()
            ticks += sum(map(int, _stat(pid)[11:13]))
            peak += sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return Use(peak / 2**10, ticks / os.sysconf("SC_CLK_TCK"))


class Meter:
    """Measures the share of the processors that other programs take, from its creation on."""

    def __init__(self) -> None:
        self._began, self._own, self._all = time.perf_counter(), used().seconds, _busy()

    def others(self) -> float:
        """The share in [0, 1]; 0 if it is unknown."""
        own, busy = used().seconds - self._own, _busy() - self._all
        there = (time.perf_counter() - self._began) * (os.cpu_count() or 1)
        return min(max(busy - own, 0.0) / there, 1.0)


def _busy() -> float:
    """The busy seconds of all processors together."""
    try:
        ticks = (PROC / "stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    return sum(int(ticks[place]) for place in _BUSY) / os.sysconf("SC_CLK_TCK")


def _family() -> set[str]:
    """The ids of this process and all its descendants."""
    parents = {}
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError):
            parents[folder.name] = _stat(folder.name)[1]
    family = {str(os.getpid())}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def _stat(pid: str) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may contain any characters."""
    return (PROC / pid / "stat").read_text().rpartition(")")[2].split()
