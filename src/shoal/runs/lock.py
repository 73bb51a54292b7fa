"""Locks: a directory is used by one process at a time."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from shoal.core.errors import SpecError
from shoal.runs.files import translate_os_errors

if sys.platform != "win32":
    import fcntl

PATIENCE = 2.0  # seconds: a process that was just killed may need a moment to disappear
_PAUSE = 0.05

_HELD: set[tuple[int, int]] = set()  # by this process: the system would grant it the same lock twice


class Lock:
    """A lock on a directory, held until it is released or the process ends in any way.

    `file` is inside the directory, and contains the id of the last process that locked it.
    """

    def __init__(self, directory: Path, file: Path) -> None:
        with translate_os_errors(file):
            file.parent.mkdir(exist_ok=True)
            if file.exists() and _identity(os.stat(file)) in _HELD:
                raise _in_use(directory, str(os.getpid()))
            self._handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
            if not _granted(self._handle):
                holder = os.pread(self._handle, 20, 0).decode("ascii", "replace")
                os.close(self._handle)
                raise _in_use(directory, holder)
            self._identity = _identity(os.fstat(self._handle))
            _HELD.add(self._identity)
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Release the lock, so that other processes can use the directory."""
        if self._identity in _HELD:
            _HELD.discard(self._identity)
            os.close(self._handle)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _in_use(directory: Path, holder: str) -> SpecError:
    return SpecError(
        f"{directory} is in use by the process {holder}; wait until it ends, or choose another directory"
    )


def _granted(handle: int) -> bool:
    if sys.platform == "win32":
        return True
    last = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except (BlockingIOError, PermissionError):  # which of the two depends on the system
            if time.monotonic() >= last:
                return False
        time.sleep(_PAUSE)
