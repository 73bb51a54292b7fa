"""The files of a data set: found in the data folder by checksum, or downloaded into it."""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from shoal.core.errors import SpecError

LARGEST_MEMBER = 2**31  # bytes of a file inside an archive; the known ones have at most a fifth of that


@dataclass(frozen=True)
class RemoteFile:
    """A published file: its path in the data folder, its address, and its checksum."""

    path: str  # inside the data folder, with forward slashes
    url: str
    hash: str  # "sha256:...", "sha1:..." or "md5:..."


@dataclass(frozen=True)
class Member:
    """A file inside an archive. Without a checksum, an existing file is accepted as it is."""

    path: str  # inside the data folder, once unpacked
    name: str  # inside the archive
    hash: str | None = None


@dataclass(frozen=True)
class Archive:
    """A published .tar.gz or .zip, and the members that Shoal reads."""

    file: RemoteFile
    members: tuple[Member, ...]


def data_folder() -> Path:
    """The folder of all data sets: `SHOAL_DATA`, or `shoal` in the user's cache folder."""
    if folder := os.environ.get("SHOAL_DATA"):
        return Path(folder).expanduser()
    import pooch

    return Path(pooch.os_cache("shoal"))


def fetch_files(files: Sequence[RemoteFile], folder: Path | None = None) -> list[Path]:
    """The paths of `files`, in order. Missing files are downloaded."""
    folder = folder or data_folder()
    flaws = {file: found for file in files if (found := _flaw(folder / file.path, file.hash)) is not None}
    lines = [_line(file.path, found, file.hash, file.url) for file, found in flaws.items()]
    if any(flaws.values()):  # never overwrite a file that the user put there
        raise _wrong(lines, folder)
    for position, file in enumerate(flaws):
        try:
            _download(file, folder)
        except (OSError, ValueError) as error:
            raise _unfetched(_reason(error, file), lines[position:], folder) from None
    return [folder / file.path for file in files]


def fetch_members(archive: Archive, folder: Path | None = None) -> list[Path]:
    """The paths of an archive's members, in order.

    The archive is needed only if members are missing. It is kept in the folder, so that other members can be
    unpacked later without another download.
    """
    folder = folder or data_folder()
    members = archive.members
    flaws = {each: found for each in members if (found := _flaw(folder / each.path, each.hash)) is not None}
    lines = [_line(each.path, found, each.hash, archive.file.url) for each, found in flaws.items()]
    if any(flaws.values()):
        raise _wrong(lines, folder)
    if flaws:
        try:
            (packed,) = fetch_files([archive.file], folder)
        except SpecError as error:
            raise SpecError(f"{error}, or what is in it: {', '.join(lines)}") from None
        _unpack(packed, list(flaws), folder)
    return [folder / member.path for member in members]


# -- checking files


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as stream:
        return f"{algorithm}:{hashlib.file_digest(stream, algorithm).hexdigest()}"


def _flaw(path: Path, known: str | None) -> str | None:
    """None if the file can be used, "" if it is missing, otherwise its wrong checksum."""
    if not path.is_file():
        return ""
    found = _digest(path, known.partition(":")[0]) if known else None
    return None if found == known else found


def _line(path: str, found: str, known: str | None, url: str) -> str:
    state = f"wrong, has {found}" if found else "missing"
    return f"{path}: {state}; needs {known or 'the file'} from {url}"


def _wrong(lines: Sequence[str], folder: Path) -> SpecError:
    head = (
        f"data files in {folder} have wrong checksums; remove them to download them, put the right ones "
        "there, or set SHOAL_DATA to the folder with the right files:"
    )
    return SpecError(f"{head}\n  {', '.join(lines)}")


def _unfetched(reason: str, lines: Sequence[str], folder: Path) -> SpecError:
    head = (
        f"download failed: {reason}; put the files below into {folder}, or set SHOAL_DATA to the folder "
        "with the files:"
    )
    return SpecError(f"{head}\n  {', '.join(lines)}")


# -- downloading


Watcher = Callable[[str, int, int], None]  # called with (file, bytes so far, total bytes) during a download
_WATCHER: ContextVar[Watcher | None] = ContextVar("watcher of downloads", default=None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Report downloads within this block to `watcher`."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


class _Teller:
    """A progress bar for pooch that reports to the watcher."""

    def __init__(self, path: str) -> None:
        self._path, self._came, self.total = path, 0, 0

    def update(self, amount: int) -> None:
        self._came += amount
        watcher = _WATCHER.get()
        if watcher is not None:
            watcher(self._path, min(self._came, self.total or self._came), self.total)

    def reset(self) -> None:  # pooch calls it before it fills the bar completely
        self._came = 0

    def close(self) -> None:
        """Nothing to close."""


def _download(file: RemoteFile, folder: Path) -> None:
    """Download one file. Pooch moves it into place only if its checksum is right."""
    import pooch

    target = folder / file.path
    pooch.get_logger().setLevel("WARNING")  # progress is reported by the watcher
    pooch.retrieve(
        file.url,
        known_hash=file.hash,
        fname=target.name,
        path=target.parent,
        downloader=pooch.HTTPDownloader(progressbar=_Teller(file.path), chunk_size=1 << 16),
    )


def _reason(error: Exception, file: RemoteFile) -> str:
    """Why a download failed, in a few words, since the libraries' messages take many lines."""
    import requests

    host = urlsplit(file.url).netloc
    if isinstance(error, requests.HTTPError) and error.response is not None:
        error.response.close()  # pooch leaves the connection open
        return f"{host} answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return f"{host} did not answer in time"
    if isinstance(error, requests.RequestException):
        return f"no connection to {host}"
    if isinstance(error, OSError):
        return f"{error.strerror or error} ({error.filename or file.path})"
    return f"the file from {host} has a wrong checksum"


def _unpack(packed: Path, members: Sequence[Member], folder: Path) -> None:
    """Write `members` to their paths, each atomically and only with the right checksum."""
    wanted = {member.name: member for member in members}
    try:
        for name, stream in _streams(packed, set(wanted)):
            _place(stream, wanted.pop(name), packed, folder)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise SpecError(f"could not unpack {packed}: {error}") from None
    if wanted:
        raise SpecError(f"{packed} lacks {', '.join(wanted)}; unpack another release into {folder} by hand")


def _streams(packed: Path, names: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """The named members, in archive order: a .tar.gz can only be read forwards."""
    if packed.suffix == ".zip":
        with zipfile.ZipFile(packed) as archive:
            for name in archive.namelist():
                if name in names:
                    with archive.open(name) as stream:
                        yield name, stream
    else:
        with tarfile.open(packed, "r|*") as tape:
            for entry in tape:
                if entry.name in names and entry.isreg() and (content := tape.extractfile(entry)) is not None:
                    yield entry.name, content


def _place(stream: IO[bytes], member: Member, packed: Path, folder: Path) -> None:
    target = folder / member.path
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            left = LARGEST_MEMBER
            while chunk := stream.read(1 << 20):
                left -= len(chunk)
                if left < 0:
                    raise SpecError(f"{member.name} in {packed} is larger than {LARGEST_MEMBER:,} bytes")
                out.write(chunk)
        if member.hash and (found := _digest(Path(draft), member.hash.partition(":")[0])) != member.hash:
            raise SpecError(f"{member.name} in {packed} has the checksum {found} instead of {member.hash}")
        os.replace(draft, target)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
