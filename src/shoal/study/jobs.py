"""Many runs on all cores, each on one thread; what is done is kept, and taken up again where it was.

A job is a run and what is to be known of it. Its folder is an ordinary run directory, with the answer
beside the record. Workers are processes that take one job after another; whoever started them ends them,
however that goes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import torch

from shoal.core.errors import SpecError, StageError
from shoal.engines.local import cores
from shoal.engines.process import die_with_parent
from shoal.runs.directory import RunDirectory, to_json, write_whole
from shoal.runs.runner import Result, resume, run
from shoal.spec import Spec
from shoal.terminal import bars

ANSWER = "answer.json"


class Job(NamedTuple):
    """A run, and the function that says what is to be known of it: plain data, kept as JSON."""

    name: str  # of its folder
    spec: Spec
    measure: Callable[[Result], Any]  # a function of a module, so that another process can find it


class Tick(NamedTuple):
    """What a worker says: a round is over, or (`ended`) the job is."""

    ended: bool = False
    error: str = ""
    curable: bool = False  # by the user


@dataclass
class JobWorker:
    """A process, this end of its pipe, and what it works on."""

    process: Any
    pipe: Connection
    job: Job | None = None
    rounds: int = 0  # of the job that are known to be over


def kept(jobs: Sequence[Job], folder: Path) -> dict[str, Any]:
    """The answers that are in the folder already, by the names of the jobs."""
    if len({job.name for job in jobs}) < len(jobs):
        raise ValueError("every job needs a name of its own")
    found = {}
    for job in jobs:
        path = folder / job.name
        if path.exists():
            RunDirectory.reopen(path, job.spec)
            if (path / ANSWER).exists():
                found[job.name] = _read(path)
    return found


@contextmanager
def crew(jobs: Sequence[Job], folder: Path, workers: int = 0) -> Iterator[list[JobWorker]]:
    """Processes for the jobs, as many as there are processors; they end with the block."""
    found: list[JobWorker] = []
    try:
        for _ in range(min(workers or cores(), len(jobs))):
            found.append(_hired(folder, found))
        yield found
    finally:
        for worker in found:
            worker.process.kill()
        for worker in found:
            worker.process.join()
            worker.pipe.close()


def work(
    workers: Sequence[JobWorker], jobs: Sequence[Job], folder: Path, watcher: Callable[[int], None]
) -> dict[str, Any]:
    """All jobs done; their answers by name. `watcher` is told how many rounds have been played."""
    waiting, rounds, answers = deque(jobs), 0, {}
    for worker in workers:
        _hand_out(worker, waiting)
    while busy := {worker.pipe: worker for worker in workers if worker.job is not None}:
        for pipe in wait(list(busy)):
            worker = busy[pipe]  # type: ignore[index]
            job, tick = _heard(worker)
            # one that was begun before, or may stop early, has fewer rounds to tell of
            new = job.spec.rounds - worker.rounds if tick.ended else 1
            worker.rounds += new
            rounds += new
            watcher(rounds)
            if tick.ended:
                answers[job.name] = _read(folder / job.name)
                _hand_out(worker, waiting)
    return answers


def _hired(folder: Path, others: Sequence[JobWorker]) -> JobWorker:
    ways = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("fork" if "fork" in ways else None)
    here, there = context.Pipe()
    inherited = [here, *(worker.pipe for worker in others)] if "fork" in ways else []
    process = context.Process(target=_serve, args=(folder, there, inherited))
    process.start()
    there.close()
    return JobWorker(process, here)


def _hand_out(worker: JobWorker, waiting: deque[Job]) -> None:
    worker.job, worker.rounds = waiting.popleft() if waiting else None, 0
    if worker.job is not None:
        worker.pipe.send(worker.job)


def _heard(worker: JobWorker) -> tuple[Job, Tick]:
    assert worker.job is not None
    try:
        tick: Tick = worker.pipe.recv()
    except EOFError:
        worker.process.join()
        raise StageError(
            f"the process of {worker.job.name} ended ({worker.process.exitcode}) before its job"
        ) from None
    if tick.error:
        raise (SpecError if tick.curable else StageError)(f"{worker.job.name}: {tick.error}")
    return worker.job, tick


def _serve(folder: Path, pipe: Connection, inherited: Sequence[Connection]) -> None:
    """What a worker does: jobs, until the pipe closes."""
    for connection in inherited:  # the parent's ends: while they are open here, nobody sees the parent die
        connection.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    die_with_parent()
    torch.set_num_threads(1)  # the threads that the parent may have had are not in this process
    with suppress(EOFError, OSError):
        while True:
            pipe.send(_done(pipe.recv(), folder, lambda record: pipe.send(Tick())))
    os._exit(0)


def _done(job: Job, folder: Path, watcher: Callable[[Mapping[str, Any]], None]) -> Tick:
    path = folder / job.name
    alone = replace(job.spec, engine=replace(job.spec.engine, workers=1))  # the others have work, too
    try:
        if path.exists():
            result = resume(path, watcher, report=False)
        else:
            result = run(alone, path, watcher, report=False)
        write_whole(path / ANSWER, (to_json(job.measure(result)) + "\n").encode())
    except SpecError as error:
        return Tick(True, str(error), True)
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        return Tick(True, f"{error}\n\nIn the process of the job:\n{trace}")
    return Tick(True)


def _read(path: Path) -> Any:
    return json.loads((path / ANSWER).read_text(encoding="utf-8"))


def watched(title: str, jobs: Sequence[Job], folder: Path) -> dict[str, Any]:
    """Work on jobs with a bar for all of them; their answers by name."""
    # processes first: a copy of a process whose other thread draws bars would copy its locks as well
    with crew(jobs, folder) as workers, bars() as shown:
        watch = shown.add(title, sum(job.spec.rounds for job in jobs))
        return work(workers, jobs, folder, lambda rounds: watch({"round": rounds}))
