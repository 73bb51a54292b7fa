"""Check a run directory: every hash, and the model against the summary.

Nothing that the directory names is imported, and models are not built: only their bytes are hashed.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from shoal.core.errors import SpecError
from shoal.runs.files import find_damage
from shoal.runs.manifest import (
    LATEST,
    PREVIOUS,
    ROUNDS,
    SPEC,
    DamagedError,
    Manifest,
    check_spec,
    read_manifest,
)

MODEL, SUMMARY = "model.safetensors", "summary.json"
TORCH_NAMES = {  # safetensors' names of number formats -> torch's
    **{f"F{bits}": f"torch.float{bits}" for bits in (64, 32, 16)},
    **{f"I{bits}": f"torch.int{bits}" for bits in (64, 32, 16, 8)},
    **{"U8": "torch.uint8", "BOOL": "torch.bool", "BF16": "torch.bfloat16", "F8_E5M2": "torch.float8_e5m2"},
}


class Verdict(NamedTuple):
    """The outcome of checking a run directory."""

    flaws: tuple[str, ...]
    files: int  # number of files checked
    rounds: int  # number of rounds covered by the checkpoint
    finished: bool


def verify(path: Path) -> Verdict:
    """Check all files of a run."""
    if not (path / SPEC).is_file():
        raise SpecError(f"{path} is not a run directory: it has no {SPEC}")
    flaws, checked, latest = list[str](), {SPEC}, None
    for name in (LATEST, PREVIOUS):
        if name == PREVIOUS and not (path / name).exists() and latest is not None and not latest.progress:
            continue  # no checkpoint yet, and so no previous one
        try:
            manifest = read_manifest(path, name)
        except DamagedError as damage:
            flaws.append(str(damage))
            continue
        latest = latest or manifest
        checked |= {name, *manifest.files, *manifest.result, ROUNDS}
        flaws += (*_spec_flaws(path, manifest), *manifest.flaws(path))
    if latest is not None and latest.result:
        flaws += _result_flaws(path, latest)
    finished = latest is not None and bool(latest.result)
    return Verdict(tuple(dict.fromkeys(flaws)), len(checked), latest.round if latest else 0, finished)


def _spec_flaws(path: Path, manifest: Manifest) -> Iterator[str]:
    try:
        check_spec(path / SPEC, tomllib.loads((path / SPEC).read_text(encoding="utf-8")), manifest)
    except SpecError as error:
        yield str(error)
    except (OSError, ValueError, RecursionError) as error:
        yield f"{path / SPEC} is damaged: {error}"


def _result_flaws(path: Path, manifest: Manifest) -> Iterator[str]:
    damaged = [
        found for name, wanted in manifest.result.items() if (found := find_damage(path / name, wanted))
    ]
    yield from damaged
    if damaged:
        return
    try:
        summary = json.loads((path / SUMMARY).read_bytes())
        records = [json.loads(line) for line in (path / ROUNDS).read_bytes().splitlines()]
        if model_sha256(path / MODEL) != summary["weights_sha256"]:
            yield f"{path / MODEL} is not the model of {SUMMARY}: its weights_sha256 differs"
        if [record["round"] for record in records] != list(range(1, summary["rounds"] + 1)):
            yield f"{path / ROUNDS} has not exactly one line for each of the {summary['rounds']} rounds"
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        yield f"{path} does not hold the result of a run: {error!r}"


def model_sha256(path: Path) -> str:
    """The `weights_sha256` of a safetensors file."""
    data = memoryview(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(bytes(data[8:start]))
    header.pop("__metadata__", None)
    digest = hashlib.sha256()
    for name in sorted(header):
        entry = header[name]
        shape, (first, end) = tuple(entry["shape"]), entry["data_offsets"]
        digest.update(f"{name}\0{TORCH_NAMES[entry['dtype']]}\0{shape}\0".encode())
        digest.update(data[start + first : start + end])
    return digest.hexdigest()
