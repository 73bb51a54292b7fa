"""A fast signal between two processes, which also detects when the other one has died.

Waking a sleeping process takes 50 microseconds, and more on virtual cores. So the waiting side first polls a
number in shared memory, and sleeps (reading from a pipe) only if that does not change for a while: on a busy
machine, longer polling takes the core away from the very process that it waits for. The pipe closes when the
other side ends.
"""

from __future__ import annotations

import mmap
import os
import time

WATCH = 0.0002  # seconds of polling before the waiting side sleeps


class SignalEnd:
    """One of the two ends: each side sends signals with `notify`, and waits for those of the other."""

    def __init__(self, read: int, write: int, given: memoryview, taken: memoryview) -> None:
        self._read, self._write, self._given, self._taken = read, write, given, taken
        self._waited = 0

    def notify(self) -> None:
        """Let the other side continue. Raises `EOFError` if it has ended."""
        try:
            os.write(self._write, b"!")
        except BrokenPipeError:
            raise EOFError("the other process has ended") from None
        self._given[0] += 1

    def wait(self) -> None:
        """Wait until the other side has pulled once more. Raises `EOFError` if it has ended."""
        self._waited += 1
        taken, waited, clock = self._taken, self._waited, time.perf_counter
        end = clock() + WATCH
        while taken[0] < waited and clock() < end:
            pass
        if not os.read(self._read, 1):
            raise EOFError("the other process has ended")

    def close(self) -> None:
        """Close this end. After a fork, each process must close the end that belongs to the other."""
        os.close(self._read)
        os.close(self._write)


def signal_pair() -> tuple[SignalEnd, SignalEnd]:
    """Create two connected ends; call it before the fork."""
    (read, there), (back, write) = os.pipe(), os.pipe()
    counts = memoryview(mmap.mmap(-1, 2 * 64)).cast("q")  # one cache line per side
    first, second = counts[:1], counts[8:9]
    return SignalEnd(back, there, first, second), SignalEnd(read, write, second, first)
