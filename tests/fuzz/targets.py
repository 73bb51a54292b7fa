"""Readers of what comes from outside, and inputs to start from. Each may raise Shoal's own errors only."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars
import tomli_w
import torch
from PIL import Image
from safetensors.torch import save
from toy import table

from shoal.arrivals.csv_file import CsvArrivals
from shoal.core.errors import PacketError, SpecError
from shoal.core.serialization import from_bytes, to_bytes
from shoal.core.types import ModelUpdate, Reply, Weights
from shoal.data import own
from shoal.data.file_formats import read_idx
from shoal.data.sites import CsvFile, SiteOptions, SiteSource, agree
from shoal.devices.trace import _rows
from shoal.federation.letters import Answer, read_answer, write_answer
from shoal.federation.own_files import read_summary, summary_tree
from shoal.report.runs import read_run
from shoal.report.table import comparison_rows, shown_columns, stat_text
from shoal.runs.initial_weights import with_initial_weights
from shoal.runs.manifest import LATEST, DamagedError, blank, read_manifest
from shoal.runs.tree_file import read_tree, tree_bytes
from shoal.runs.verify import verify
from shoal.spec import dump_spec, from_table, load_table

OWN = (SpecError, PacketError, DamagedError)


class Target(NamedTuple):
    """A reader, and inputs that it accepts."""

    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


def _trees() -> list[object]:
    weights = Weights({"w": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(0)}, {"n": torch.tensor(3)})
    reply = Reply(
        ModelUpdate(weights), torch.tensor(5.0, dtype=torch.float64), {"train_loss": torch.tensor(0.5)}
    )
    return [reply, {"a": (1, None, "text"), 7: [True, 1.5]}, weights, (), torch.ones(3, dtype=torch.bool)]


def _written(data: bytes, read: Callable[[Path], object], name: str) -> object:
    path = _folder() / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(data)
    return read(path)


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def _folder() -> Path:
    """In memory, if the system has such a folder."""
    if not _FOLDERS:
        memory = Path("/dev/shm")
        _FOLDERS.append(tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None))
    return Path(_FOLDERS[0].name)


def _spec(path: Path) -> object:
    return dump_spec(from_table(load_table(path)))


def _with_weights(path: Path) -> object:
    return with_initial_weights(lambda: torch.nn.Linear(2, 3), path)


def _manifest(path: Path) -> object:
    (path.parent.parent / "spec.toml").write_text("rounds = 3\n")
    with suppress(SpecError):
        verify(path.parent.parent)
    return read_manifest(path.parent.parent, LATEST)


def _record(path: Path) -> object:
    """What `shoal report` reads, and what it prints of it."""
    (path.parent / "spec.toml").write_text('[method]\nname = "fedavg"\n')
    (path.parent / "summary.json").write_text("{}")
    (row,) = comparison_rows([read_run(path.parent)])
    return [stat_text(metric, row.stat(metric)) for metric in shown_columns([row])]


def _summary(path: Path) -> object:
    (path.parent / "rounds.jsonl").write_text("")
    (path.parent / "spec.toml").write_text('[method]\nname = "fedavg"\n')
    (row,) = comparison_rows([read_run(path.parent)])
    return [stat_text(metric, row.stat(metric)) for metric in shown_columns([row])]


def _specs() -> tuple[bytes, ...]:
    devices = table("fsi", devices={"name": "tiers"}, faults={"min_replies": 2})
    small = {"rounds": 2, "method": {"name": "fedprox", "mu": 0.1}, "codec": {"name": "uniform", "bits": 8}}
    return tuple(tomli_w.dumps(found).encode() for found in (table(), devices, small))


def _answer(data: bytes) -> object:
    """What a site of a federation says; the server refuses what it cannot read."""
    try:
        return read_answer(data)
    except ValueError as error:
        raise SpecError(str(error)) from None


def _told(data: bytes) -> object:
    """What a site tells of its columns, and what the others make of it."""
    try:
        summary = read_summary(from_bytes(data), "north")
    except (PacketError, SpecError):
        raise
    except Exception as error:  # as the server of a federation does
        raise SpecError(str(error)) from None
    return agree([_SITE, summary], SiteOptions("sick"))


def packed_picture(image: Image.Image, kind: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def _arrays(save: Callable[..., None]) -> bytes:
    buffer = io.BytesIO()
    save(buffer, x=np.arange(30, dtype=np.float32).reshape(10, 3), y=np.arange(10) % 2)
    return buffer.getvalue()


def _frame() -> bytes:
    buffer = io.BytesIO()
    columns = {"age": [31.5, None, 40.0, 50.0, 61.0], "town": list("abaab"), "sick": list("ynyny")}
    polars.DataFrame(columns).write_parquet(buffer)
    return buffer.getvalue()


def _state_dict() -> bytes:
    buffer = io.BytesIO()
    torch.save(torch.nn.Linear(2, 3).state_dict(), buffer)
    return buffer.getvalue()


def _image(data: bytes) -> object:
    """One image among others."""
    folder = _folder() / "images"
    if not folder.exists():
        for name in ("cat/0.png", "dog/0.png", "dog/1.png", "cat/1.png", "cat/2.png"):
            _written(_PICTURE, lambda path: None, f"images/{name}")
    (folder / "dog" / "2.png").write_bytes(data)
    return own.images(path=str(folder))


TABLE_TEXT = (
    "age,town,sick\n" + "".join(f"{20 + n},{'ab'[n % 2]},{'yn'[n % 3 // 2]}\n" for n in range(12))
).encode()
_PICTURE = packed_picture(Image.new("RGB", (6, 5), (10, 200, 30)), "PNG")
_SITE = SiteSource(
    "south",
    (_written(TABLE_TEXT, CsvFile, "site.csv"),),
    SiteOptions("sick"),  # type: ignore[arg-type]
).summary()

LINE = {
    "round": 1,
    "accuracy": 0.5,
    "loss": 1.25,
    "bytes_up": 7,
    "bytes_down": 8,
    "seconds": 0.5,
    "virtual_seconds": None,
    "cohort": [1, 2],
    "rejected": [{"client": 3, "reason": "late"}],
    "weights": {"1": 0.5},
}
RECORD = "".join(json.dumps({**LINE, "round": n}) + "\n" for n in (1, 2, 3)).encode()
IDX = bytes((0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, *range(8)))

TARGETS: dict[str, Target] = {
    "packet": Target(from_bytes, tuple(map(to_bytes, _trees()))),
    "spec": Target(partial(_written, read=_spec, name="spec.toml"), _specs()),
    "checkpoint": Target(
        partial(_written, read=read_tree, name="progress.safetensors"), tuple(map(tree_bytes, _trees()))
    ),
    "index": Target(
        partial(_written, read=_manifest, name=f"index/{LATEST}"), (blank(table(), "here").to_bytes(),)
    ),
    "record": Target(partial(_written, read=_record, name="record/rounds.jsonl"), (RECORD,)),
    "summary": Target(
        partial(_written, read=_summary, name="summary/summary.json"),
        (
            json.dumps(
                {"rounds": 3, "final_accuracy": 0.5, "rejected": 0, "bytes_up": 9, "seconds": 1.5}
            ).encode(),
        ),
    ),
    "idx": Target(
        lambda data: _written(gzip.compress(data, 1), read_idx, "images.gz"),
        (IDX, IDX[:3] + b"\1\0\0\0\x03123"),
    ),
    "gzip": Target(partial(_written, read=read_idx, name="packed.gz"), (gzip.compress(IDX),)),
    "csv": Target(
        partial(_written, read=lambda path: CsvArrivals(str(path)).timetable(8)(1), name="arrivals.csv"),
        (b"client,join,leave\n1,2,\n3,1,4\n3,6,\n",),
    ),
    "trace": Target(
        partial(_written, read=lambda path: _rows.__wrapped__(str(path)), name="devices.csv"),
        (b"client,speed,down,up,latency,round\n0,1,2,3,0.1,1\n1,5,6,7,,2\n",),
    ),
    "own_csv": Target(
        partial(_written, read=lambda path: own.csv(path=str(path), label="sick"), name="own.csv"),
        (TABLE_TEXT, TABLE_TEXT.replace(b",", b";").replace(b"21", b"?")),
    ),
    "own_csv_gz": Target(
        partial(_written, read=lambda path: own.csv(path=str(path), label="sick"), name="own.csv.gz"),
        (gzip.compress(TABLE_TEXT),),
    ),
    "own_npz": Target(
        partial(_written, read=lambda path: own.npz(path=str(path)), name="own.npz"),
        (_arrays(np.savez), _arrays(np.savez_compressed)),
    ),
    "own_parquet": Target(
        partial(_written, read=lambda path: own.parquet(path=str(path), label="sick"), name="own.parquet"),
        (_frame(),),
    ),
    "own_image": Target(
        _image,
        (
            _PICTURE,
            *(packed_picture(Image.new("RGB", (6, 5)), kind) for kind in ("JPEG", "GIF", "TIFF", "BMP")),
        ),
    ),
    "init": Target(
        partial(_written, read=_with_weights, name="weights.safetensors"),
        (save(torch.nn.Linear(2, 3).state_dict()),),
    ),
    "state_dict": Target(
        partial(_written, read=_with_weights, name="weights.pt"),
        (_state_dict(),),
    ),
    "answer": Target(_answer, (write_answer(Answer(3, 1, 0, "", {"samples": 7})),)),
    "site_summary": Target(_told, (to_bytes(summary_tree(_SITE)),)),
}
