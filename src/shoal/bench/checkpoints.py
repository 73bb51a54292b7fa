"""The cost of checkpoints on every workload: after every round, and at the default pace of a run."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from shoal.bench.rounds import Row
from shoal.bench.workloads import WORKLOADS, Workload
from shoal.loop import advance, start
from shoal.run_settings import Checkpoint
from shoal.runs.build import Setup
from shoal.runs.directory import RunDirectory
from shoal.runs.record import as_record
from shoal.runs.runner import Pace, closing, one_thread, save

SPENT = 5.0  # seconds of rounds for each of the two paces
FEWEST = 2  # minimum number of rounds
SETTLING = 0.5  # seconds of warm-up rounds, in which processes start and modes are tried
EVERY_ROUND = Checkpoint(every_seconds=0.0)


def measure(
    names: Sequence[str] | None = None,
    seconds: float = SPENT,
    watcher: Callable[[str, str], None] | None = None,
) -> Iterator[Row]:
    """One row per workload; shares are relative to the time of the rounds."""
    for name in names or list(WORKLOADS):
        if watcher is not None:
            watcher(name, "checkpoints")
        yield _measured(WORKLOADS[name], seconds)


def _measured(workload: Workload, seconds: float) -> Row:
    with one_thread(), closing(workload.spec) as setup:
        progress, ends = start(setup.federation), time.perf_counter() + SETTLING
        while time.perf_counter() < ends:
            progress, _ = advance(setup.federation, progress)
        often = _timed(setup, EVERY_ROUND, seconds)
        paced = _timed(setup, Checkpoint(), seconds)
    return {
        "workload": workload.name,
        "seconds_per_round": statistics.median([*often.rounds, *paced.rounds]),
        "seconds_per_checkpoint": statistics.median(often.checkpoints),
        "share_every_round": sum(often.checkpoints) / sum(often.rounds),
        "share": sum(paced.checkpoints) / sum(paced.rounds),
        "share_of_record": sum(paced.lines) / sum(paced.rounds),
    }


class _Times(NamedTuple):
    """Seconds, one value per round; for checkpoints, one per checkpoint."""

    rounds: list[float]
    lines: list[float]  # for appending a round to the record
    checkpoints: list[float]


def _timed(setup: Setup, wanted: Checkpoint, seconds: float) -> _Times:
    """Time rounds, and the writing after each of them, as in a run."""
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        directory = RunDirectory.create(Path(folder) / "run", setup.spec)
        try:
            return _played(setup, directory, Pace(wanted), seconds)
        finally:
            directory.close()


def _played(setup: Setup, directory: RunDirectory, pace: Pace, seconds: float) -> _Times:
    times, progress = _Times([], [], []), start(setup.federation)
    saved, over = progress.accepted, time.perf_counter() + seconds
    while len(times.rounds) < FEWEST or time.perf_counter() < over:
        began = time.perf_counter()
        progress, done = advance(setup.federation, progress)
        ended = time.perf_counter()
        record = as_record(progress.round, {}, done, ended - began, setup.shards.names)
        directory.append_round(record)
        times.rounds.append(ended - began)
        times.lines.append(time.perf_counter() - ended)
        if pace.due(progress.round, last=False):
            began = time.perf_counter()
            with pace.saving():
                save(setup, directory, progress, saved)
            saved = progress.accepted
            times.checkpoints.append(time.perf_counter() - began)
    return times
