"""A run's directory: created atomically, locked while in use, and robust against crashes at any point."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w
import torch
from safetensors.torch import save
from torch import Tensor

from shoal.core.errors import SpecError
from shoal.core.types import Tree, Version
from shoal.loop import Progress
from shoal.runs.checkpoint import LOCK, MEMORY, Checkpoints, not_a_checkpoint
from shoal.runs.files import (
    UNFINISHED,
    Stamp,
    find_damage,
    is_free,
    is_unfinished,
    stamp,
    sync_folder,
    translate_os_errors,
    write_all,
    write_atomic,
)
from shoal.runs.json_text import to_json
from shoal.runs.lock import Lock
from shoal.runs.manifest import LATEST, ROUNDS, SPEC, DamagedError, blank, read_manifest
from shoal.spec import Spec, dump_spec, from_table, load_table, to_table

MODEL, SUMMARY, REPORT = "model.safetensors", "summary.json", "report.html"


class Saved(NamedTuple):
    """The saved state from which a run continues."""

    progress: Progress | None  # None: start at the first round
    records: list[dict[str, Any]]
    memories: Mapping[int, Tree]
    environment: str


class RunDirectory:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checkpoints = Checkpoints(path)
        self._lines, self._length = hashlib.sha256(), 0  # of rounds.jsonl
        self._lock: Lock | None = None

    @classmethod
    def create(cls, path: Path, spec: Spec, environment: str = "") -> RunDirectory:
        """Create and lock the directory of a new run, atomically; refuses one that is not empty."""
        if not is_free(path):
            holds = "another run" if (path / SPEC).exists() else "other files"
            cure = f"continue it with `shoal resume {path}`, or " if (path / SPEC).exists() else ""
            raise SpecError(f"{path} already holds {holds}; {cure}choose another --out")
        whole = Path(os.path.realpath(path))
        draft = cls(whole.with_name(f".{whole.name}.{os.getpid()}{UNFINISHED}"))
        try:
            whole.parent.mkdir(parents=True, exist_ok=True)
            _clear_drafts(whole)
            (draft.path / MEMORY).mkdir(parents=True)
            draft.lock()
            text = dump_spec(spec)
            manifest = blank(tomllib.loads(text), environment)
            for name, data in {SPEC: text.encode(), ROUNDS: b"", LATEST: manifest.to_bytes()}.items():
                write_atomic(draft.path / name, data)
            if whole.exists():
                shutil.rmtree(whole)  # left by a crash; `rename` can only replace an empty folder
            os.rename(draft.path, whole)
            sync_folder(whole.parent)
        except BaseException as error:
            draft.remove()
            cause = error.__cause__ if isinstance(error, SpecError) else error
            if isinstance(cause, OSError):
                raise SpecError(
                    f"{path} cannot be created: {cause.strerror}; choose another --out"
                ) from error
            raise
        draft.path, draft._checkpoints = path, Checkpoints(path, manifest)
        return draft

    @classmethod
    def open(cls, path: Path) -> tuple[RunDirectory, Spec]:
        """Open the directory of an existing run."""
        if not (path / SPEC).exists():
            raise SpecError(f"{path} is not a run directory: it has no {SPEC}")
        return cls(path), from_table(load_table(path / SPEC))

    @classmethod
    def reopen(cls, path: Path, spec: Spec) -> RunDirectory:
        """Open the directory of an existing run of this spec; refuses the run of another spec."""
        directory, found = cls.open(path)
        if _numbers_of(found) != _numbers_of(spec):
            raise SpecError(f"{path} holds a run of another spec; choose another --out")
        return directory

    def lock(self) -> None:
        """Keep other processes from using the directory until `close`."""
        self._lock = Lock(self.path, self.path / LOCK)

    def close(self) -> None:
        """Release the lock, so that other processes can use the directory."""
        if self._lock is not None:
            self._lock.release()

    @property
    def finished(self) -> bool:
        """Whether the run is complete and its result undamaged."""
        return (self.path / SUMMARY).exists() and not self.result_flaws()

    def result_flaws(self) -> list[str]:
        """The problems with the files of the result."""
        try:
            result = read_manifest(self.path, LATEST).result
        except DamagedError as damage:
            return [str(damage)]
        return [found for name, wanted in result.items() if (found := find_damage(self.path / name, wanted))]

    def remove(self) -> None:
        """Delete a directory that `create` made."""
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    # ---- writing

    def append_round(self, record: Mapping[str, Any]) -> None:
        """Append the record of a round."""
        line = (to_json(record) + "\n").encode()
        with translate_os_errors(self.path / ROUNDS):
            handle = os.open(self.path / ROUNDS, os.O_WRONLY | os.O_APPEND)
            try:
                write_all(handle, line)
            finally:
                os.close(handle)
        self._lines.update(line)
        self._length += len(line)

    def save_checkpoint(
        self, progress: Progress, memories: Iterable[tuple[int, Version, Tree]], environment: str
    ) -> None:
        """See `Checkpoints.save`."""
        self._checkpoints.save(progress, memories, self._stamp(), environment)

    def write_result(self, weights: Mapping[str, Tensor], summary: Mapping[str, Any]) -> None:
        """Write all models of the server, and the summary, which finishes the run."""
        # clusters that no client has trained yet share tensors, but a file must hold each one separately
        model = save({n: v.clone(memory_format=torch.contiguous_format) for n, v in weights.items()})
        text = (to_json(summary, indent=2) + "\n").encode()
        result = {ROUNDS: self._stamp(), MODEL: write_atomic(self.path / MODEL, model), SUMMARY: stamp(text)}
        self._checkpoints.finish(result)
        write_atomic(self.path / SUMMARY, text)

    def extend(self, rounds: int) -> None:
        """Raise the number of rounds of the run, which is then no longer finished."""
        table = load_table(self.path / SPEC)
        if rounds < table["rounds"]:
            raise SpecError(f"rounds can only be raised: {self.path} has {table['rounds']}, got {rounds}")
        with suppress(DamagedError):
            manifest = read_manifest(self.path, LATEST)
            if manifest.result:
                write_atomic(self.path / LATEST, manifest._replace(result={}).to_bytes())
        with translate_os_errors(self.path / SUMMARY):
            (self.path / SUMMARY).unlink(missing_ok=True)
        write_atomic(self.path / SPEC, tomli_w.dumps({**table, "rounds": rounds}).encode())

    # ---- reading

    def load_checkpoint(self) -> Saved:
        """Load the latest undamaged checkpoint (the last or the previous one); drops later records."""
        manifest = self._checkpoints.newest_intact()
        with translate_os_errors(self.path / ROUNDS):
            os.truncate(self.path / ROUNDS, manifest.rounds.length)
        text = (self.path / ROUNDS).read_bytes()
        self._lines, self._length = hashlib.sha256(text), len(text)
        progress, memories = self._checkpoints.load(manifest)
        records = [] if progress is None else _parsed(text)
        if records is None:
            raise not_a_checkpoint(self.path)
        return Saved(progress, records, memories, manifest.environment)

    def _stamp(self) -> Stamp:
        """The stamp of rounds.jsonl so far."""
        return Stamp(self._length, self._lines.hexdigest())


def _parsed(text: bytes) -> list[dict[str, Any]] | None:
    try:
        return [json.loads(line) for line in text.splitlines()]
    except (ValueError, RecursionError):
        return None


def _clear_drafts(path: Path) -> None:
    """Remove the unfinished folders of processes that died while they created this directory."""
    for draft in path.parent.iterdir():
        if is_unfinished(draft) and draft.name.startswith(f".{path.name}.") and draft.is_dir():
            try:
                Lock(draft, draft / LOCK).release()
            except SpecError:
                continue  # its process is alive, or died before it could create the lock's folder
            shutil.rmtree(draft, ignore_errors=True)


def _numbers_of(spec: Spec) -> dict[str, Any]:
    """The part of a spec that determines results: everything but the engine and the checkpoints."""
    return {name: value for name, value in to_table(spec).items() if name not in ("engine", "checkpoint")}
