"""The index of a checkpoint: its files with their lengths and hashes, and the spec they belong to.

Neither this module nor the modules it imports execute anything that a run directory names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shoal.core.errors import SpecError
from shoal.runs.files import Stamp, find_damage, stamp

FORMAT = 1  # of checkpoints; raise it with every change that older versions of Shoal cannot read
CHECKPOINT = "checkpoint"
LATEST, PREVIOUS = f"{CHECKPOINT}/latest.json", f"{CHECKPOINT}/previous.json"
SPEC, ROUNDS = "spec.toml", "rounds.jsonl"
MAY_CHANGE = ("rounds", "engine", "evaluate", "checkpoint")  # in the spec of a run that is continued


class DamagedError(Exception):
    """A file is missing or not as it was written. The message names it."""


class Manifest(NamedTuple):
    """The index of a checkpoint. Names of files are relative to the run directory."""

    round: int
    progress: str | None  # the name of its file; None before the first checkpoint
    files: Mapping[str, Stamp]  # of the checkpoint
    rounds: Stamp  # of the part of rounds.jsonl that the checkpoint covers
    result: Mapping[str, Stamp]  # the files of a finished run
    spec: Mapping[str, Any]
    environment: str

    def to_bytes(self) -> bytes:
        """The index as JSON, with a hash of itself."""
        content = {"format": FORMAT, **self._asdict(), "spec_sha256": spec_sha256(self.spec)}
        return (json.dumps({**content, "sha256": _own_sha256(content)}) + "\n").encode()

    def flaws(self, directory: Path) -> Iterator[str]:
        """The problems with the files in the index."""
        for name, wanted in self.files.items():
            if found := find_damage(directory / name, wanted):
                yield found
        if found := find_damage(directory / ROUNDS, self.rounds, prefix=True):
            yield found


def blank(spec: Mapping[str, Any], environment: str) -> Manifest:
    """The index of a run that has not begun."""
    return Manifest(0, None, {}, stamp(b""), {}, spec, environment)


def read_manifest(directory: Path, name: str) -> Manifest:
    """Read an index; raises `DamagedError`, or `SpecError` if a newer version of Shoal wrote it."""
    path = directory / name
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing") from None
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise DamagedError(f"{path} is damaged: it is not JSON") from None
    version = content.get("format") if isinstance(content, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise SpecError(
            f"{path} has the format {version}, but this version of Shoal reads formats up to {FORMAT}; "
            f"install one that knows format {version}"
        )
    if version != FORMAT or content.pop("sha256", None) != _own_sha256(content):
        raise DamagedError(f"{path} is damaged: its SHA-256 is not the one that was written down")
    try:
        return _parsed(content)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DamagedError(f"{path} is damaged: it does not describe a checkpoint") from None


def _parsed(content: Mapping[str, Any]) -> Manifest:
    fields = {name: content[name] for name in Manifest._fields}
    for name in ("files", "result"):
        fields[name] = {file: _stamp(found) for file, found in fields[name].items()}
        if any(Path(file).is_absolute() or ".." in Path(file).parts for file in fields[name]):
            raise ValueError("a file outside the directory")
    if type(fields["round"]) is not int or not isinstance(fields["spec"], dict):
        raise TypeError("not a checkpoint")
    return Manifest(**{**fields, "rounds": _stamp(fields["rounds"])})


def _stamp(found: Any) -> Stamp:
    length, digest = found
    if type(length) is not int or not isinstance(digest, str):
        raise TypeError("not a stamp")
    return Stamp(length, digest)


def _own_sha256(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def spec_sha256(table: Mapping[str, Any]) -> str:
    """A hash over the part of a spec that must not change when a run is continued."""
    return _own_sha256({name: value for name, value in table.items() if name not in MAY_CHANGE})


def check_spec(path: Path, found: Mapping[str, Any], manifest: Manifest) -> None:
    """Refuse a spec that was changed after the run had begun, except for the tables in `MAY_CHANGE`."""
    for name in {**manifest.spec, **found}:
        if name not in MAY_CHANGE and (change := _change(name, manifest.spec.get(name), found.get(name))):
            raise SpecError(
                f"{path} was changed after the run had begun: {change}; restore it, or run the new spec with "
                "another --out (rounds may be raised; engine, evaluate and checkpoint may change)"
            )
    rounds = found.get("rounds")
    if not isinstance(rounds, int) or rounds < manifest.round:
        raise SpecError(
            f"{path} has rounds = {rounds}, but {manifest.round} are done; rounds can only be raised"
        )


def _change(name: str, before: Any, now: Any) -> str:
    """A text on the first field that differs; empty if none does."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        inner = (_change(f"{name}.{key}", before.get(key), now.get(key)) for key in {**before, **now})
        return next(filter(None, inner), "")
    return "" if before == now else f"{name} is {_told(now)} and was {_told(before)}"


def _told(value: Any) -> str:
    text = "not there" if value is None else json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
