"""A run's directory: created atomically, locked while in use, and robust against crashes at any point."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tomllib
import warnings
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
from shoal.runs.files import (
    UNFINISHED,
    Stamp,
    flaw,
    is_free,
    is_unfinished,
    stamp,
    storing,
    sync_folder,
    write_all,
    write_whole,
)
from shoal.runs.json_text import to_json
from shoal.runs.lock import Lock
from shoal.runs.manifest import (
    CHECKPOINT,
    LATEST,
    PREVIOUS,
    ROUNDS,
    SPEC,
    DamagedError,
    Manifest,
    blank,
    check_spec,
    read_manifest,
)
from shoal.runs.tree_file import read_tree, tree_bytes
from shoal.spec import Spec, dump_spec, from_table, load_table, to_table

MODEL, SUMMARY, REPORT = "model.safetensors", "summary.json", "report.html"
MEMORY, LOCK = f"{CHECKPOINT}/memory", f"{CHECKPOINT}/lock"


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
        self._manifest: Manifest | None = None  # of the last good checkpoint
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
            draft._manifest = blank(tomllib.loads(text), environment)
            for name, data in {
                SPEC: text.encode(),
                ROUNDS: b"",
                LATEST: draft._manifest.to_bytes(),
            }.items():
                write_whole(draft.path / name, data)
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
        draft.path = path
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
        return [found for name, wanted in result.items() if (found := flaw(self.path / name, wanted))]

    def remove(self) -> None:
        """Delete a directory that `create` made."""
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    # ---- writing

    def append_round(self, record: Mapping[str, Any]) -> None:
        """Append the record of a round."""
        line = (to_json(record) + "\n").encode()
        with storing(self.path / ROUNDS):
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
        """Save a checkpoint. All files get new names; the last step replaces the index that lists them.

        `memories` are those that changed since the last checkpoint; files of the others are kept, and so is
        the previous checkpoint.
        """
        assert self._manifest is not None
        with storing(self.path / ROUNDS):
            handle = os.open(self.path / ROUNDS, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)
        wanted = {_memory_name(client, version) for client, version in progress.accepted.items()}
        files = {name: kept for name, kept in self._manifest.files.items() if name in wanted}
        for client, version, memory in memories:
            files[_memory_name(client, version)] = self._store(_memory_name(client, version), memory)
        name = f"{CHECKPOINT}/progress-{progress.round}.safetensors"
        files[name] = self._store(name, progress._replace(known=sorted(progress.known)))  # type: ignore[arg-type]
        with storing(self.path / CHECKPOINT):
            sync_folder(self.path / MEMORY)
        rounds = Stamp(self._length, self._lines.hexdigest())
        self._put(Manifest(progress.round, name, files, rounds, {}, self._manifest.spec, environment))

    def write_result(self, weights: Mapping[str, Tensor], summary: Mapping[str, Any]) -> None:
        """Write all models of the server, and the summary, which finishes the run."""
        assert self._manifest is not None
        # clusters that no client has trained yet share tensors, but a file must hold each one separately
        model = save({n: v.clone(memory_format=torch.contiguous_format) for n, v in weights.items()})
        text = (to_json(summary, indent=2) + "\n").encode()
        rounds = Stamp(self._length, self._lines.hexdigest())
        result = {ROUNDS: rounds, MODEL: write_whole(self.path / MODEL, model), SUMMARY: stamp(text)}
        self._put(self._manifest._replace(result=result), keep=False)
        write_whole(self.path / SUMMARY, text)

    def extend(self, rounds: int) -> None:
        """Raise the number of rounds of the run, which is then no longer finished."""
        table = load_table(self.path / SPEC)
        if rounds < table["rounds"]:
            raise SpecError(f"rounds can only be raised: {self.path} has {table['rounds']}, got {rounds}")
        with suppress(DamagedError):
            manifest = read_manifest(self.path, LATEST)
            if manifest.result:
                write_whole(self.path / LATEST, manifest._replace(result={}).to_bytes())
        with storing(self.path / SUMMARY):
            (self.path / SUMMARY).unlink(missing_ok=True)
        write_whole(self.path / SPEC, tomli_w.dumps({**table, "rounds": rounds}).encode())

    def _store(self, name: str, tree: Tree) -> Stamp:
        return write_whole(self.path / name, tree_bytes(tree), lasting=False)

    def _put(self, manifest: Manifest, *, keep: bool = True) -> None:
        """Make `manifest` the latest one; with `keep`, the former latest becomes the previous one."""
        assert self._manifest is not None
        if keep:
            write_whole(self.path / PREVIOUS, self._manifest.to_bytes(), lasting=False)
        write_whole(self.path / LATEST, manifest.to_bytes())
        wanted = {*manifest.files, *(self._manifest.files if keep else ()), LATEST, PREVIOUS, LOCK, MEMORY}
        self._manifest = manifest
        if keep:
            with storing(self.path / CHECKPOINT):
                for folder in (CHECKPOINT, MEMORY):
                    for file in (self.path / folder).iterdir():
                        if f"{folder}/{file.name}" not in wanted:
                            file.unlink()

    # ---- reading

    def load_checkpoint(self) -> Saved:
        """Load the latest undamaged checkpoint (the last or the previous one); drops later records."""
        table, damages = load_table(self.path / SPEC), list[str]()
        for name in (LATEST, PREVIOUS):
            try:
                manifest = read_manifest(self.path, name)
            except DamagedError as damage:
                damages.append(str(damage))
                continue
            check_spec(self.path / SPEC, table, manifest)
            flaws = list(manifest.flaws(self.path))
            if not flaws:
                if damages:
                    warnings.warn(f"{damages[0]}; going on from round {manifest.round + 1}", stacklevel=3)
                return self._loaded(manifest)
            damages += flaws
        raise SpecError(
            f"{damages[0]}, and the checkpoint before cannot be used either ({damages[-1]}); restore the "
            f"files, or run again with another --out"
        )

    def _loaded(self, manifest: Manifest) -> Saved:
        self._manifest = manifest
        with storing(self.path / ROUNDS):
            os.truncate(self.path / ROUNDS, manifest.rounds.length)
        text = (self.path / ROUNDS).read_bytes()
        self._lines, self._length = hashlib.sha256(text), len(text)
        if manifest.progress is None:
            return Saved(None, [], {}, manifest.environment)
        progress, records = read_tree(self.path / manifest.progress), _parsed(text)
        if not isinstance(progress, Progress) or records is None:
            raise SpecError(f"{self.path} does not hold a checkpoint of Shoal; run again with another --out")
        accepted = {client: (version[0], version[1]) for client, version in progress.accepted.items()}
        names = {client: _memory_name(client, version) for client, version in accepted.items()}
        memories = {c: read_tree(self.path / name) for c, name in names.items() if name in manifest.files}
        progress = progress._replace(known=frozenset(progress.known), accepted=accepted)
        return Saved(progress, records, memories, manifest.environment)


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


def _memory_name(client: int, version: Version) -> str:
    return f"{MEMORY}/{client}-{version[0]}-{version[1]}.safetensors"
