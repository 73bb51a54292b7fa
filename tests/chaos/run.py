"""Kill runs at random and at every operation on the disk, and see that they go on to the same bits.

The disk is full at every operation, too: what is left must go on likewise, once there is room.

`python tests/chaos/run.py [--kills 100] [--seed 0]`, or `make chaos`. Ends with 1 after a miss.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.disk import acting_at, die, fails_with, in_a_fork
from toy import table

import shoal
from shoal import SpecError
from shoal.runs.files import is_free
from shoal.runs.verify import verify
from shoal.spec import from_table

METHODS = ("fedavg", "scaffold", "fedqp", "fsi", "dsvd", "genefl", "situa_cq")
WORKERS = (1, 2)
CLOCK = ("seconds", "seconds_to_max")  # what a clock on the wall decides


def tables(method: str, workers: int = 1, rounds: int = 6) -> dict[str, Any]:
    """A small federation with a checkpoint every round."""
    engine = {"mode": "serial" if workers == 1 else "workers", "workers": workers}
    often = {"every_seconds": 0}
    return table(method, rounds=rounds, engine=engine, checkpoint=often, evaluate={"every": 2, "clients": 2})


def fingerprint(path: Path) -> tuple[Any, ...]:
    """All that must be the same: hashes of models and memories, and the record but for its clock."""
    summary = json.loads((path / "summary.json").read_text())
    lines = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    record = [{name: value for name, value in line.items() if name not in CLOCK} for line in lines]
    return summary["weights_sha256"], summary["memory_sha256"], record, verify(path).flaws


def again(spec: dict[str, Any], path: Path) -> None:
    """What a user does after a crash."""
    if is_free(path):
        shoal.run(spec, path, report=False)
    else:
        shoal.resume(path, report=False)


def killed_after(seconds: float, work: Callable[[], Any]) -> int:
    """Run `work` in a process of its own, and kill it after so many seconds; returns how it ended."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def random_kills(folder: Path, kills: int, rng: np.random.Generator) -> Iterator[str]:
    """Runs of every method, killed again and again until they are through; `kills` in all."""
    cases = [(method, workers) for method in METHODS for workers in WORKERS]
    for position, (method, workers) in enumerate(cases):
        spec, name = tables(method, workers), f"{method}-{workers}"
        started = time.monotonic()
        shoal.run(spec, folder / f"{name}-whole", report=False)
        usual, wanted = time.monotonic() - started, fingerprint(folder / f"{name}-whole")
        share, done, attempt = kills // len(cases) + (position < kills % len(cases)), 0, 0
        while done < share:
            path = folder / f"{name}-{attempt}"
            attempt += 1
            while not (path / "summary.json").exists():
                work = lambda path=path, spec=spec: again(spec, path)  # noqa: E731
                left = killed_after(float(rng.uniform(0, usual)) if done < share else 1e9, work)
                done += left == -signal.SIGKILL
                if left not in (0, -signal.SIGKILL):
                    yield f"{name}: ended with {left} after a kill"
                    break
            if (path / "summary.json").exists() and fingerprint(path) != wanted:
                yield f"{name}: other numbers in {path}"
        print(f"{name}: killed {done} times in {attempt} runs", flush=True)


def every_operation(folder: Path) -> Iterator[str]:
    """Runs that die at each write, rename, sync and mkdir of their lives."""
    for method in ("fedavg", "scaffold"):
        spec, whole = tables(method, rounds=3), folder / f"{method}-operations"
        with acting_at(-1, die) as seen:
            shoal.run(spec, whole, report=False)
        wanted = fingerprint(whole)
        for place in range(len(seen)):
            path = folder / f"{method}-at-{place}"

            def work(place: int = place, path: Path = path, spec: dict[str, Any] = spec) -> None:
                with acting_at(place, die):
                    shoal.run(spec, path, report=False)

            if in_a_fork(work) != -signal.SIGKILL:
                yield f"{method}: did not die at operation {place}"
            again(spec, path)
            if fingerprint(path) != wanted:
                yield f"{method}: other numbers after a death at operation {place}, {seen[place]}"
        print(f"{method}: died at each of {len(seen)} operations", flush=True)
        yield from full_disks(folder, method, spec, seen, wanted)


def full_disks(
    folder: Path, method: str, spec: dict[str, Any], seen: list[str], wanted: tuple[Any, ...]
) -> Iterator[str]:
    """Runs whose disk is full at each operation of their lives: an error of one line, and they go on."""
    for place, operation in enumerate(seen):
        path = folder / f"{method}-full-{place}"
        try:
            with acting_at(place, fails_with(errno.ENOSPC)):
                shoal.run(spec, path, report=False)
        except SpecError as error:
            if "\n" in str(error) or os.strerror(errno.ENOSPC) not in str(error):
                yield f"{method}: {error!r} where the disk is full at operation {place}, {operation}"
        else:
            if operation not in ("unlink", "mkdir"):  # clearing away may fail
                yield f"{method}: no error where the disk is full at operation {place}, {operation}"
        if not (path / "summary.json").exists():
            again(spec, path)
        if fingerprint(path) != wanted:
            yield f"{method}: other numbers after a full disk at operation {place}, {operation}"
    print(f"{method}: a full disk at each of {len(seen)} operations", flush=True)


def comparison(folder: Path) -> dict[str, Any]:
    """All runs of a comparison."""
    from shoal.study.compare import plan, run_missing

    planned = plan(["fedavg", "scaffold"], tables("fedavg", rounds=4), [], [0, 1], folder)
    run_missing(planned, lambda one: None)
    return {one.directory.name: fingerprint(one.directory) for one in planned}


def arena(folder: Path) -> dict[str, Any]:
    """The answers of an arena, and its runs."""
    from shoal.study import arena as study

    matches = study.plan(["fedavg", "median"], ["sign_flip"], tables("fedavg", rounds=4), [], [0, 1])
    answers = study.run_matches(matches, folder)
    found = {name: {k: v for k, v in answer.items() if k not in CLOCK} for name, answer in answers.items()}
    return {**found, "runs": [fingerprint(folder / "runs" / match.job.name) for match in matches]}


def _measure(result: shoal.Result) -> float | None:
    return result.final_accuracy


def reproduction(folder: Path) -> dict[str, Any]:
    """The answers of an experiment."""
    from shoal.study.jobs import Job
    from shoal.study.reproduce.run_experiment import ExperimentFolder

    jobs = [
        Job(f"seed{seed}", from_table({**tables("scaffold"), "seed": seed}), _measure) for seed in range(4)
    ]
    answers = ExperimentFolder("chaos", "quick", folder).run_jobs(jobs)
    return {**answers, "runs": [fingerprint(folder / "runs" / job.name) for job in jobs]}


STUDIES = (comparison, arena, reproduction)


def studies(folder: Path, kills: int, rng: np.random.Generator) -> Iterator[str]:
    """Commands of many runs, killed and run again until they are through."""
    for study in STUDIES:
        name, started = study.__name__, time.monotonic()
        wanted = study(folder / f"{name}-whole")
        usual = time.monotonic() - started
        killed = 0
        for _ in range(kills):
            path = folder / name
            left = killed_after(float(rng.uniform(0, usual)), lambda study=study, path=path: study(path))
            if left not in (0, -signal.SIGKILL):
                yield f"{name}: ended with {left} after a kill"
            killed += left == -signal.SIGKILL
        if study(folder / name) != wanted:
            yield f"{name}: other numbers"
        print(f"{name}: killed {killed} times", flush=True)


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    chosen, started = parser.parse_args(), time.monotonic()
    rng = np.random.Generator(np.random.Philox(chosen.seed))
    shoal.run(tables("fedavg"))  # what is slow the first time
    with tempfile.TemporaryDirectory() as folder:
        misses = []
        for part in (
            random_kills(Path(folder), chosen.kills, rng),
            every_operation(Path(folder)),
            studies(Path(folder), 5, rng),
        ):
            for miss in part:
                print(f"MISS {miss}", flush=True)
                misses.append(miss)
    print(f"{len(misses)} misses in {time.monotonic() - started:.0f} s")
    sys.exit(1 if misses else 0)


if __name__ == "__main__":
    try:
        main()
    except SpecError as error:
        sys.exit(f"MISS {error}")
