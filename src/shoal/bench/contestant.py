"""One contestant in a process of its own: `python -m shoal.bench.contestant WORKLOAD PEER`.

It makes everything ready. Then, for each line on stdin, it runs one stretch of rounds and prints one line of
JSON: what it did, and how long it took. It ends with its stdin.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch

from shoal.bench.flower import flower
from shoal.bench.peers import Serve, Stretch
from shoal.bench.pfl import pfl
from shoal.bench.plain import Plain, keep_memory
from shoal.bench.workloads import Workload, named
from shoal.directory import RunDirectory
from shoal.loop import Round, advance, start
from shoal.runner import closing, one_thread
from shoal.spec import EngineSpec, from_table, to_table


def plain(workload: Workload, serve: Serve) -> None:
    """The hand-written loop."""
    keep_memory()
    with Plain(workload.material()) as loop:
        serve(loop.run, workload.rounds)


def shoal(workload: Workload, serve: Serve, **engine: Any) -> None:
    """Shoal as `shoal run` runs it, but for evaluation: rounds, and a line of the record for each."""
    table = to_table(workload.spec)
    spec = from_table({**table, "engine": {**table["engine"], **engine}})
    with one_thread(), closing(spec) as setup, tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(Path(folder) / "run", setup.spec)
        progress, epochs = start(setup.federation), workload.local.epochs

        def run(first: int, rounds: int) -> tuple[float, int]:
            nonlocal progress
            cohorts, started = [], time.perf_counter()
            for _ in range(rounds):
                begun = time.perf_counter()
                progress, done = advance(setup.federation, progress)
                directory.append_round(_record(progress.round, done, time.perf_counter() - begun))
                cohorts.append(done.cohort)
            seconds = time.perf_counter() - started
            counts = (setup.shards.count(client) for cohort in cohorts for client in cohort)
            return seconds, epochs * sum(counts)

        serve(run, workload.rounds)


def _record(round: int, done: Round, seconds: float) -> dict[str, Any]:
    """A line as a run writes it in a round without an evaluation."""
    return {
        "round": round,
        "accuracy": None,
        "loss": None,
        **done.metrics,
        "bytes_up": done.bytes_up,
        "bytes_down": done.bytes_down,
        "seconds": seconds,
        "virtual_seconds": None,
        "cohort": list(done.cohort),
        "rejected": [{"client": client, "reason": reason} for client, reason in done.rejected],
    }


CONTESTANTS: dict[str, Callable[[Workload, Serve], None]] = {
    "shoal": shoal,
    "shoal-exact": partial(shoal, exact=True),
    "plain": plain,
    "flower": flower,
    "pfl": pfl,
}


def exact_exists() -> bool:
    """Whether the engine can be told to give the same bits however clients are spread."""
    return "exact" in {field.name for field in fields(EngineSpec)}


def serve(answers: IO[str], stretch: Stretch, rounds: int) -> None:
    """Run a stretch for every line on stdin."""
    first = 0
    for _ in sys.stdin:
        seconds, samples = stretch(first, rounds)
        first += rounds
        answer = {"seconds": seconds, "samples": samples, "rounds": rounds, "peak_rss_mb": peak_rss_mb()}
        print(json.dumps(answer), file=answers, flush=True)


def peak_rss_mb() -> float:
    """The peaks of this process and all below it, summed; what these share is counted in each.

    Where there is no /proc: its own peak and the largest of those children that have ended.
    """
    own = Path("/proc/self/status")
    if not own.exists():
        parts = (
            resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        return sum(parts) / (2**20 if sys.platform == "darwin" else 2**10)
    peaks, parents = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # it has ended in between
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
            pid = int(lines["Pid"])
            peaks[pid], parents[pid] = int(lines.get("VmHWM", "0 kB").split()[0]), int(lines["PPid"])
    family = {os.getpid()}
    while grown := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= grown
    return sum(peaks.get(pid, 0) for pid in family) / 2**10


def main(name: str, peer: str) -> None:
    """Be a contestant until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")  # stdout is for answers alone: what others print there goes to stderr
    os.dup2(2, 1)
    torch.set_num_threads(1)
    (workload,) = named(name)
    CONTESTANTS[peer](workload, partial(serve, answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
