"""A disk that fails at a chosen operation, and processes that die there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

OPERATIONS = ("write", "pwrite", "fsync", "replace", "rename", "mkdir", "truncate", "ftruncate", "unlink")

Act = Callable[[str], None]  # what happens at the chosen operation, given its name


@contextmanager
def acting_at(place: int, act: Act) -> Iterator[list[str]]:
    """Call `act` before the operation with this number, counted from 0; yields the names of all so far.

    If the operation is a write, half of it is done before.
    """
    seen: list[str] = []
    real = {name: getattr(os, name) for name in OPERATIONS}

    def wrapped(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            seen.append(name)
            if len(seen) - 1 == place:
                if name == "write":
                    handle, data = arguments
                    real["write"](handle, bytes(data)[: len(data) // 2])
                act(name)
            return real[name](*arguments, **options)

        return call

    try:
        for name in OPERATIONS:
            setattr(os, name, wrapped(name))
        yield seen
    finally:
        for name in OPERATIONS:
            setattr(os, name, real[name])


def die(operation: str) -> None:
    """As a crash does: at once, and without a word."""
    os.kill(os.getpid(), signal.SIGKILL)


def fails_with(number: int) -> Act:
    """As the system refuses an operation."""

    def act(operation: str) -> None:
        raise OSError(number, os.strerror(number), operation)

    return act


def in_a_fork(work: Callable[[], Any]) -> int:
    """Run `work` in a process of its own; returns its exit code, or minus the signal that ended it."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
