"""The checkpoints of a run: a crash at any point leaves the last one, or the one before it, intact.

A checkpoint is an index (`manifest`) of files that no other checkpoint overwrites. Replacing the index is the
last step.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from shoal.core.errors import SpecError
from shoal.core.types import Tree, Version
from shoal.loop import Progress
from shoal.runs.files import Stamp, sync_folder, translate_os_errors, write_atomic
from shoal.runs.manifest import (
    CHECKPOINT,
    LATEST,
    PREVIOUS,
    ROUNDS,
    SPEC,
    DamagedError,
    Manifest,
    check_spec,
    read_manifest,
)
from shoal.runs.tree_file import read_tree, tree_bytes
from shoal.spec import load_table

MEMORY, LOCK = f"{CHECKPOINT}/memory", f"{CHECKPOINT}/lock"


class Stored(NamedTuple):
    """The content of a checkpoint."""

    progress: Progress | None  # None: before the first round
    memories: Mapping[int, Tree]  # of clients


class Checkpoints:
    """The last checkpoint of a run directory, and the one before it."""

    def __init__(self, path: Path, latest: Manifest | None = None) -> None:
        self._path, self._latest = path, latest  # None until one is loaded

    def save(
        self,
        progress: Progress,
        memories: Iterable[tuple[int, Version, Tree]],
        rounds: Stamp,
        environment: str,
    ) -> None:
        """Save a checkpoint. All files get new names; the last step replaces the index that lists them.

        `memories` are those that changed since the last checkpoint; files of the others are kept, and so is
        the previous checkpoint. `rounds` is the stamp of rounds.jsonl so far.
        """
        assert self._latest is not None
        with translate_os_errors(self._path / ROUNDS):
            handle = os.open(self._path / ROUNDS, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)
        wanted = {_memory_name(client, version) for client, version in progress.accepted.items()}
        files = {name: kept for name, kept in self._latest.files.items() if name in wanted}
        for client, version, memory in memories:
            files[_memory_name(client, version)] = self._store(_memory_name(client, version), memory)
        name = f"{CHECKPOINT}/progress-{progress.round}.safetensors"
        files[name] = self._store(name, progress._replace(known=sorted(progress.known)))  # type: ignore[arg-type]
        with translate_os_errors(self._path / CHECKPOINT):
            sync_folder(self._path / MEMORY)
        before = self._latest
        latest = Manifest(progress.round, name, files, rounds, {}, before.spec, environment)
        write_atomic(self._path / PREVIOUS, before.to_bytes(), lasting=False)
        write_atomic(self._path / LATEST, latest.to_bytes())
        self._latest = latest
        self._remove_others({*files, *before.files, LATEST, PREVIOUS, LOCK, MEMORY})

    def finish(self, result: Mapping[str, Stamp]) -> None:
        """Add the files of the result to the index of the last checkpoint."""
        assert self._latest is not None
        self._latest = self._latest._replace(result=result)
        write_atomic(self._path / LATEST, self._latest.to_bytes())

    def newest_intact(self) -> Manifest:
        """The index of the last checkpoint, or of the one before if that is damaged."""
        table, damages = load_table(self._path / SPEC), list[str]()
        for name in (LATEST, PREVIOUS):
            try:
                manifest = read_manifest(self._path, name)
            except DamagedError as damage:
                damages.append(str(damage))
                continue
            check_spec(self._path / SPEC, table, manifest)
            flaws = list(manifest.flaws(self._path))
            if not flaws:
                if damages:
                    warnings.warn(f"{damages[0]}; going on from round {manifest.round + 1}", stacklevel=4)
                return manifest
            damages += flaws
        raise SpecError(
            f"{damages[0]}, and the checkpoint before cannot be used either ({damages[-1]}); restore the "
            f"files, or run again with another --out"
        )

    def load(self, manifest: Manifest) -> Stored:
        """Read a checkpoint, after which the run goes on."""
        self._latest = manifest
        if manifest.progress is None:
            return Stored(None, {})
        progress = read_tree(self._path / manifest.progress)
        if not isinstance(progress, Progress):
            raise not_a_checkpoint(self._path)
        accepted = {client: (version[0], version[1]) for client, version in progress.accepted.items()}
        names = {client: _memory_name(client, version) for client, version in accepted.items()}
        memories = {c: read_tree(self._path / name) for c, name in names.items() if name in manifest.files}
        return Stored(progress._replace(known=frozenset(progress.known), accepted=accepted), memories)

    def _store(self, name: str, tree: Tree) -> Stamp:
        return write_atomic(self._path / name, tree_bytes(tree), lasting=False)

    def _remove_others(self, wanted: set[str]) -> None:
        with translate_os_errors(self._path / CHECKPOINT):
            for folder in (CHECKPOINT, MEMORY):
                for file in (self._path / folder).iterdir():
                    if f"{folder}/{file.name}" not in wanted:
                        file.unlink()


def not_a_checkpoint(path: Path) -> SpecError:
    """The error for files that are intact, but not Shoal's."""
    return SpecError(f"{path} does not hold a checkpoint of Shoal; run again with another --out")


def _memory_name(client: int, version: Version) -> str:
    return f"{MEMORY}/{client}-{version[0]}-{version[1]}.safetensors"
