"""One contestant in its own process: `python -m shoal.bench.contestant WORKLOAD PEER`.

It first prepares everything. Then, for each line on stdin, it runs one stretch of rounds and prints one line
of JSON with its work and time. It ends when stdin closes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch

from shoal.bench.flower import flower
from shoal.bench.other_frameworks import Serve, Stretch
from shoal.bench.pfl import pfl
from shoal.bench.plain_pytorch import Plain, keep_memory
from shoal.bench.usage import Meter, used
from shoal.bench.workloads import Workload, named
from shoal.engines.local import LocalEngine
from shoal.loop import advance, start
from shoal.run_settings import EngineSpec
from shoal.runs.build import Setup
from shoal.runs.directory import RunDirectory
from shoal.runs.record import Record, as_record
from shoal.runs.runner import closing, conclude, one_thread, save
from shoal.spec import from_table, to_table

UNJUDGED = {"accuracy": None, "loss": None}  # metrics of a round without an evaluation


def plain(workload: Workload, serve: Serve) -> None:
    """The plain PyTorch loop."""
    keep_memory()
    with Plain(workload.material()) as loop:
        serve(loop.run, workload.rounds)


def shoal(workload: Workload, serve: Serve, **engine: Any) -> None:
    """Shoal as in `shoal run`, except for evaluation: rounds, and a line of the record for each.

    If the workload includes the run directory, a stretch ends like a run: with a checkpoint, the model, the
    summary and the report.
    """
    table = to_table(workload.spec)
    spec = from_table({**table, "engine": {**table["engine"], **engine}})
    with one_thread(), closing(spec) as setup, tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(Path(folder) / "run", setup.spec)
        _settle(setup)
        progress, records, epochs = start(setup.federation), list[Record](), workload.local.epochs

        def run(first: int, rounds: int) -> tuple[float, int]:
            nonlocal progress
            started, saved = time.perf_counter(), progress.accepted
            for _ in range(rounds):
                begun = time.perf_counter()
                progress, done = advance(setup.federation, progress)
                seconds = time.perf_counter() - begun
                records.append(as_record(progress.round, UNJUDGED, done, seconds))
                directory.append_round(records[-1])
            if workload.directory:
                save(setup, directory, progress, saved)
                conclude(setup, progress, records, directory, report=True)
            seconds = time.perf_counter() - started
            cohorts = (record["cohort"] for record in records[-rounds:])
            counts = (setup.shards.count(client) for cohort in cohorts for client in cohort)
            return seconds, epochs * sum(counts)

        serve(run, workload.rounds)


def _settle(setup: Setup) -> None:
    """Run rounds until "auto" has chosen a mode, which happens only once per run."""
    progress, engine = start(setup.federation), setup.federation.engine
    while isinstance(engine, LocalEngine) and not engine.settled:
        progress, _ = advance(setup.federation, progress)


CONTESTANTS: dict[str, Callable[[Workload, Serve], None]] = {
    "shoal": shoal,
    "shoal-exact": partial(shoal, exact=True),
    "plain": plain,
    "flower": flower,
    "pfl": pfl,
}


def exact_exists() -> bool:
    """Whether the engine has the option `exact`: the same bits however clients are distributed."""
    return "exact" in {field.name for field in fields(EngineSpec)}


def serve(answers: IO[str], stretch: Stretch, rounds: int) -> None:
    """Run a stretch for every line on stdin."""
    first = 0
    for _ in sys.stdin:
        meter = Meter()
        seconds, samples = stretch(first, rounds)
        others, peak = meter.others(), used().peak_rss_mb
        first += rounds
        answer = {"seconds": seconds, "samples": samples, "rounds": rounds}
        print(json.dumps({**answer, "peak_rss_mb": peak, "others": others}), file=answers, flush=True)


def main(name: str, peer: str) -> None:
    """Be a contestant until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")  # stdout carries only answers: other output goes to stderr
    os.dup2(2, 1)
    torch.set_num_threads(1)
    (workload,) = named(name)
    CONTESTANTS[peer](workload, partial(serve, answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
