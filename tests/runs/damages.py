"""Kinds of damage to a run directory, by name: what each does to one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from shoal.runs.manifest import LATEST, PREVIOUS, ROUNDS, SPEC

Damage = Callable[[Path], None]

MODEL, SUMMARY, REPORT, CHECKPOINT = "model.safetensors", "summary.json", "report.html", "checkpoint"


def progress(run: Path, place: int = -1) -> Path:
    return sorted((run / CHECKPOINT).glob("progress-*"))[place]


def memories(run: Path, *, new: bool) -> list[Path]:
    """Those that only the last checkpoint names, or those that the one before names too."""
    last, before = (json.loads((run / name).read_text())["files"] for name in (LATEST, PREVIOUS))
    return sorted(run / name for name in last if "/memory/" in name and (name not in before) == new)


def memory(run: Path) -> Path:
    return memories(run, new=True)[0]


def old_memory(run: Path) -> Path:
    return memories(run, new=False)[0]


def file(name: str) -> Callable[[Path], Path]:
    return lambda run: run / name


def flipped(which: Callable[[Path], Path], at: float) -> Damage:
    """One bit, at this share of the file."""

    def damage(run: Path) -> None:
        data = bytearray(which(run).read_bytes())
        data[int(at * (len(data) - 1))] ^= 4
        which(run).write_bytes(data)

    return damage


def cut(which: Callable[[Path], Path], at: float) -> Damage:
    def damage(run: Path) -> None:
        data = which(run).read_bytes()
        which(run).write_bytes(data[: int(at * len(data))])

    return damage


def missing(which: Callable[[Path], Path]) -> Damage:
    return lambda run: which(run).unlink()


def appended(which: Callable[[Path], Path], more: bytes) -> Damage:
    return lambda run: (which(run).write_bytes(which(run).read_bytes() + more), None)[1]


def replaced(name: str, old: str, new: str) -> Damage:
    def damage(run: Path) -> None:
        text = (run / name).read_text()
        assert old in text
        (run / name).write_text(text.replace(old, new, 1))

    return damage


def written(name: str, data: bytes) -> Damage:
    return lambda run: ((run / name).write_bytes(data), None)[1]


def copied(source: Callable[[Path], Path], target: Callable[[Path], Path]) -> Damage:
    return lambda run: (shutil.copy(source(run), target(run)), None)[1]


def swapped(run: Path) -> None:
    first, second = memories(run, new=True)[:2]
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)


def lines(change: Callable[[list[str]], list[str]]) -> Damage:
    def damage(run: Path) -> None:
        (run / ROUNDS).write_text("".join(change((run / ROUNDS).read_text().splitlines(keepends=True))))

    return damage


def a_folder_in_its_place(run: Path) -> None:
    found = progress(run)
    found.unlink()
    found.mkdir()


def of_a_newer_format(run: Path) -> None:
    found = json.loads((run / LATEST).read_text())
    (run / LATEST).write_text(json.dumps({**found, "format": 99}))


def several(*damages: Damage) -> Damage:
    def damage(run: Path) -> None:
        for each in damages:
            each(run)

    return damage


# to a run that was interrupted after its third round, with a checkpoint every round
UNFINISHED: dict[str, Damage] = {
    "progress: a bit of its numbers": flipped(progress, 0.9),
    "progress: a bit of its header": flipped(progress, 0.05),
    "progress: its first byte": flipped(progress, 0.0),
    "progress: cut": cut(progress, 0.5),
    "progress: empty": cut(progress, 0.0),
    "progress: missing": missing(progress),
    "progress: a byte too many": appended(progress, b"\0"),
    "progress: that of the round before": copied(lambda run: progress(run, 0), progress),
    "progress: a folder": a_folder_in_its_place,
    "progress: both damaged": several(flipped(progress, 0.9), flipped(lambda run: progress(run, 0), 0.9)),
    "memory: a bit of its numbers": flipped(memory, 0.9),
    "memory: a bit of its header": flipped(memory, 0.1),
    "memory: cut": cut(memory, 0.7),
    "memory: empty": cut(memory, 0.0),
    "memory: missing": missing(memory),
    "memory: two swapped": swapped,
    "memory: the model's": copied(progress, memory),
    "memory: an old one, a bit of its numbers": flipped(old_memory, 0.9),
    "memory: an old one for a new one": copied(old_memory, memory),
    "memory: all missing": lambda run: shutil.rmtree(run / CHECKPOINT / "memory"),
    "index: cut": cut(file(LATEST), 0.6),
    "index: empty": cut(file(LATEST), 0.0),
    "index: missing": missing(file(LATEST)),
    "index: another round": replaced(LATEST, '"round": 3', '"round": 2'),
    "index: another hash": replaced(LATEST, '"rounds": [', '"rounds": [1'),
    "index: another environment": replaced(LATEST, "torch", "torch 9"),
    "index: another spec": replaced(LATEST, '"lr": 0.1', '"lr": 0.2'),
    "index: of a newer format": of_a_newer_format,
    "index: nested without end": written(LATEST, b"[" * 100_000),
    "index: not text": written(LATEST, b"\xff\xfe" * 50),
    "index: another kind of JSON": written(LATEST, b"[1, 2]"),
    "index: that of the checkpoint before": copied(file(PREVIOUS), file(LATEST)),
    "index: both damaged": several(cut(file(LATEST), 0.5), flipped(file(PREVIOUS), 0.5)),
    "index before: missing": missing(file(PREVIOUS)),
    "index before: cut": cut(file(PREVIOUS), 0.5),
    "record: a line lost": lines(lambda found: found[:1] + found[2:]),
    "record: the last line lost": lines(lambda found: found[:-1]),
    "record: a line twice": lines(lambda found: found[:2] + found[1:]),
    "record: lines swapped": lines(lambda found: [found[1], found[0], *found[2:]]),
    "record: a number changed": replaced(ROUNDS, '"loss": ', '"loss": 1'),
    "record: half a line more": appended(file(ROUNDS), b'{"round": 5, "acc'),
    "record: a foreign line more": appended(file(ROUNDS), b'{"round": 5}\n'),
    "record: empty": cut(file(ROUNDS), 0.0),
    "record: missing": missing(file(ROUNDS)),
    "spec: a field changed": replaced(SPEC, "lr = 0.1", "lr = 0.2"),
    "spec: the seed changed": replaced(SPEC, "seed = 3", "seed = 4"),
    "spec: a field removed": replaced(SPEC, "batch = 8\n", ""),
    "spec: a table too many": appended(file(SPEC), b'\n[attack]\nname = "sign_flip"\n'),
    "spec: fewer rounds than are done": replaced(SPEC, "rounds = 4", "rounds = 2"),
    "spec: cut": cut(file(SPEC), 0.5),
    "spec: empty": cut(file(SPEC), 0.0),
    "spec: not TOML": written(SPEC, b"\xff = ="),
    "spec: missing": missing(file(SPEC)),
    "checkpoint: missing": lambda run: shutil.rmtree(run / CHECKPOINT),
    "checkpoint: what a crash left": written(f"{CHECKPOINT}/.progress-4.safetensors.7.part", b"half"),
    "checkpoint: nonsense in the lock": written(f"{CHECKPOINT}/lock", b"\xff" * 99),
}

# to one that is finished
FINISHED: dict[str, Damage] = {
    "model: a bit of its numbers": flipped(file(MODEL), 0.9),
    "model: a bit of its header": flipped(file(MODEL), 0.05),
    "model: cut": cut(file(MODEL), 0.5),
    "model: missing": missing(file(MODEL)),
    "model: another file": copied(lambda run: progress(run), file(MODEL)),
    "summary: a number changed": replaced(SUMMARY, '"bytes_up": ', '"bytes_up": 1'),
    "summary: cut": cut(file(SUMMARY), 0.5),
    "summary: missing": missing(file(SUMMARY)),
    "record of a finished run: a number changed": replaced(ROUNDS, '"loss": ', '"loss": 1'),
    "record of a finished run: the last line lost": lines(lambda found: found[:-1]),
    "record of a finished run: a line more": appended(file(ROUNDS), b'{"round": 7}\n'),
    "index of a finished run: cut": cut(file(LATEST), 0.5),
}

UNHARMED = {  # what the checkpoints cover is as it was
    "index: that of the checkpoint before",
    "checkpoint: what a crash left",
    "checkpoint: nonsense in the lock",
    "record: half a line more",
    "record: a foreign line more",
}

BEYOND_REPAIR = {  # both checkpoints are lost, or what they build on
    *(kind for kind in UNFINISHED if kind.startswith("spec")),
    "progress: a folder",
    "progress: both damaged",
    "memory: an old one, a bit of its numbers",
    "memory: all missing",
    "index: both damaged",
    "index: of a newer format",
    "record: a line lost",
    "record: lines swapped",
    "record: a number changed",
    "record: empty",
    "record: missing",
    "checkpoint: missing",
    "record of a finished run: a number changed",
}
