"""A run's directory: its files, each written atomically."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from shoal.core.errors import SpecError
from shoal.core.serialization import flatten, unflatten
from shoal.core.types import Tree, Version, Weights
from shoal.loop import Progress
from shoal.spec import Spec, dump_spec, load_spec, to_table

SPEC, ROUNDS, MODEL, SUMMARY, REPORT = (
    "spec.toml",
    "rounds.jsonl",
    "model.safetensors",
    "summary.json",
    "report.html",
)
CHECKPOINT = "checkpoint"


class RunDirectory:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, spec: Spec) -> RunDirectory:
        """Create the directory of a new run; refuses one that is not empty."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            holds = "another run" if (path / SPEC).exists() else "other files"
            cure = f"continue it with `shoal resume {path}`, or " if (path / SPEC).exists() else ""
            raise SpecError(f"{path} already holds {holds}; {cure}choose another --out")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SpecError(f"{path} cannot be created: {error.strerror}; choose another --out") from None
        write_whole(path / SPEC, dump_spec(spec).encode())
        write_whole(path / ROUNDS, b"")
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> tuple[RunDirectory, Spec]:
        """Open the directory of an existing run."""
        if not (path / SPEC).exists():
            raise SpecError(f"{path} is not a run directory: it has no {SPEC}")
        return cls(path), load_spec(path / SPEC)

    @classmethod
    def reopen(cls, path: Path, spec: Spec) -> RunDirectory:
        """Open the directory of an existing run of this spec; refuses the run of another spec."""
        directory, found = cls.open(path)
        if _numbers_of(found) != _numbers_of(spec):
            raise SpecError(f"{path} holds a run of another spec; choose another --out")
        return directory

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return (self.path / SUMMARY).exists()

    def remove(self) -> None:
        """Delete a directory that `create` made."""
        for name in (SPEC, ROUNDS):
            (self.path / name).unlink()
        self.path.rmdir()

    def append_round(self, record: Mapping[str, Any]) -> None:
        """Append the record of a round."""
        with (self.path / ROUNDS).open("a", encoding="utf-8") as file:
            file.write(to_json(record) + "\n")

    def rounds(self, count: int) -> list[dict[str, Any]]:
        """The records of the first `count` rounds; rounds after the last checkpoint are removed."""
        lines = (self.path / ROUNDS).read_text(encoding="utf-8").splitlines()[:count]
        write_whole(self.path / ROUNDS, "".join(line + "\n" for line in lines).encode())
        return [json.loads(line) for line in lines]

    def write_model(self, weights: Mapping[str, Tensor]) -> None:
        """Write all models of the server."""
        # clusters that nobody has trained yet share their tensors, and a file must hold each by itself
        alone = {n: v.clone(memory_format=torch.contiguous_format) for n, v in weights.items()}
        write_whole(self.path / MODEL, save(alone))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the summary of the run."""
        write_whole(self.path / SUMMARY, (to_json(summary, indent=2) + "\n").encode())

    def save_checkpoint(
        self, progress: Progress, memories: Iterable[tuple[int, Version, Tree]], environment: str
    ) -> None:
        """Save a checkpoint. All files get new names; the last step replaces the index file that names them.

        `memories` are those that changed since the last checkpoint; the other files are kept.
        """
        folder = self.path / CHECKPOINT
        with (self.path / ROUNDS).open("rb") as file:
            os.fsync(file.fileno())
        (folder / "memory").mkdir(parents=True, exist_ok=True)
        for client, version, memory in memories:
            _save_tree(folder / "memory" / _memory_name(client, version), memory)
        name = f"progress-{progress.round}.safetensors"
        _save_tree(folder / name, progress._replace(known=sorted(progress.known)))  # type: ignore[arg-type]
        latest = {"round": progress.round, "progress": name, "environment": environment}
        write_whole(folder / "latest.json", json.dumps(latest).encode())
        wanted = {_memory_name(client, version) for client, version in progress.accepted.items()}
        for stale in (*folder.glob("progress-*"), *folder.glob(".*.part"), *(folder / "memory").iterdir()):
            if stale.name != name and stale.name not in wanted:
                stale.unlink()

    def load_checkpoint(self) -> tuple[Progress, str] | None:
        """The last saved progress, and the environment it was computed in; None without a checkpoint."""
        folder = self.path / CHECKPOINT
        if not (folder / "latest.json").exists():
            return None
        latest = json.loads((folder / "latest.json").read_text(encoding="utf-8"))
        progress: Progress = _load_tree(folder / latest["progress"])
        accepted = {client: (version[0], version[1]) for client, version in progress.accepted.items()}
        return progress._replace(known=frozenset(progress.known), accepted=accepted), latest["environment"]

    def load_memory(self, client: int, version: Version) -> Tree:
        """A client's memory of that version."""
        return _load_tree(self.path / CHECKPOINT / "memory" / _memory_name(client, version))


def _numbers_of(spec: Spec) -> dict[str, Any]:
    """The part of a spec that determines results: everything but the engine."""
    return {name: value for name, value in to_table(spec).items() if name != "engine"}


def _memory_name(client: int, version: Version) -> str:
    return f"{client}-{version[0]}-{version[1]}.safetensors"


def _save_tree(path: Path, tree: Tree) -> None:
    description, found = flatten(tree)
    values = {str(i): value.detach().cpu().contiguous().clone() for i, value in enumerate(found)}
    # safetensors refuses a file without tensors
    values = values or {"empty": torch.zeros(0)}
    write_whole(path, save(values, metadata={"tree": json.dumps(description)}))


def _load_tree(path: Path) -> Tree:
    with safe_open(path, framework="pt") as file:
        description = json.loads(file.metadata()["tree"])
        names = sorted((name for name in file.keys() if name != "empty"), key=int)  # noqa: SIM118
        return unflatten(description, [file.get_tensor(name) for name in names])


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically: a crash leaves either the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def named_weights(models: Mapping[str, Weights]) -> dict[str, Tensor]:
    """All tensors of the server's models; those of the global model keep their plain names."""
    return {
        f"{model}/{name}" if model else name: value
        for model, weights in models.items()
        for part in weights
        for name, value in part.items()
    }


def weights_sha256(weights: Mapping[str, Tensor]) -> str:
    """A hash over (name, dtype, shape, little-endian bytes) of each tensor, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        value = weights[name].detach().cpu().contiguous()
        digest.update(f"{name}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON for files: numbers that are not finite become null, client ids become strings."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False, default=_plain)
    except ValueError:  # a number that is not finite; searching every line for them first would be slower
        return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
