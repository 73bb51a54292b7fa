"""Files that are written atomically, and checked against a stamp before they are used again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from shoal.core.errors import SpecError

UNFINISHED = ".part"  # suffix of files and folders being written; a crash may leave some


class Stamp(NamedTuple):
    """The length and hash that identify the content of a file."""

    length: int
    sha256: str


def stamp(data: bytes) -> Stamp:
    """The stamp of a file with this content."""
    return Stamp(len(data), hashlib.sha256(data).hexdigest())


def find_damage(path: Path, wanted: Stamp, *, prefix: bool = False) -> str | None:
    """The problem with a file, or with its stamped part if that is a prefix; None if there is none."""
    try:
        if not path.is_file():
            return f"{path} is missing"
        found = path.stat().st_size
        if found < wanted.length or (found > wanted.length and not prefix):
            return f"{path} is damaged: it has {found:,} bytes instead of {wanted.length:,}"
        if _digest(path, wanted.length) != wanted.sha256:
            return f"{path} is damaged: its SHA-256 is not the one that was written down"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return None


def _digest(path: Path, length: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while length > 0 and (chunk := file.read(min(length, 1 << 20))):
            digest.update(chunk)
            length -= len(chunk)
    return digest.hexdigest()


def write_atomic(path: Path, data: bytes, *, lasting: bool = True) -> Stamp:
    """Write a file atomically: a crash leaves either the old one or the new one.

    `lasting = False` leaves the last step, `sync_folder` for all files written, to the caller.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")
    with translate_os_errors(path):
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            write_all(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, path)
        if lasting:
            sync_folder(path.parent)
    return stamp(data)


def write_all(handle: int, data: bytes) -> None:
    """Write all of the data, since the system may accept only part of it at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def sync_folder(folder: Path) -> None:
    """Make the directory entries of new files durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Turn a full disk, missing permissions and the like into errors that the user can fix."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError(f"{path} cannot be written: {reason}; make that possible, then go on") from error


def is_free(path: Path) -> bool:
    """Whether the path is unused: it does not exist, or holds only unfinished files left by a crash."""
    if not os.path.lexists(path):
        return True
    return path.is_dir() and all(map(is_unfinished, path.iterdir()))


def is_unfinished(path: Path) -> bool:
    """Whether a file or folder was being written when its writer died."""
    return path.name.startswith(".") and path.name.endswith(UNFINISHED)
