"""What checkpoints cost on every workload: written after every round, and at the pace that a run takes."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from shoal.bench.rounds import Row
from shoal.bench.workloads import WORKLOADS, Workload
from shoal.loop import advance, start
from shoal.run_settings import Checkpoint
from shoal.runs.build import Setup
from shoal.runs.directory import RunDirectory
from shoal.runs.record import as_record
from shoal.runs.runner import Pace, closing, one_thread, save

SPENT = 5.0  # seconds of rounds, for each of the two paces
FEWEST = 3  # rounds
SETTLING = 0.5  # seconds of rounds before, in which processes start and modes are tried
EVERY_ROUND = Checkpoint(every_seconds=0.0)


def measure(
    names: Sequence[str] | None = None,
    seconds: float = SPENT,
    watcher: Callable[[str, str], None] | None = None,
) -> list[Row]:
    """A row for each workload; shares are of the time that the rounds take."""
    rows = []
    for name in names or list(WORKLOADS):
        if watcher is not None:
            watcher(name, "checkpoints")
        rows.append(_measured(WORKLOADS[name], seconds))
    return rows


def _measured(workload: Workload, seconds: float) -> Row:
    with one_thread(), closing(workload.spec) as setup:
        progress, ends = start(setup.federation), time.perf_counter() + SETTLING
        while time.perf_counter() < ends:
            progress, _ = advance(setup.federation, progress)
        rounds, often = _timed(setup, EVERY_ROUND, seconds)
        again, paced = _timed(setup, Checkpoint(), seconds)
    return {
        "workload": workload.name,
        "seconds_per_round": statistics.median([*rounds, *again]),
        "seconds_per_checkpoint": statistics.median(often),
        "share_every_round": sum(often) / sum(rounds),
        "share": sum(paced) / sum(again),
    }


def _timed(setup: Setup, wanted: Checkpoint, seconds: float) -> tuple[list[float], list[float]]:
    """The seconds of rounds, and of what is written after each, as a run does it."""
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        directory = RunDirectory.create(Path(folder) / "run", setup.spec)
        try:
            return _played(setup, directory, Pace(wanted), seconds)
        finally:
            directory.close()


def _played(
    setup: Setup, directory: RunDirectory, pace: Pace, seconds: float
) -> tuple[list[float], list[float]]:
    rounds: list[float] = []
    written: list[float] = []
    progress = start(setup.federation)
    saved = progress.accepted
    while len(rounds) < FEWEST or sum(rounds) < seconds:
        began = time.perf_counter()
        progress, done = advance(setup.federation, progress)
        ended = time.perf_counter()
        record = as_record(progress.round, {}, done, ended - began, setup.shards.names)
        directory.append_round(record)
        if pace.due(progress.round, last=False):
            with pace.saving():
                save(setup, directory, progress, saved)
            saved = progress.accepted
        rounds.append(ended - began)
        written.append(time.perf_counter() - ended)
    return rounds, written
