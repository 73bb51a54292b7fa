"""Many runs on all cores, each on one thread. Finished runs are kept, and interrupted ones are resumed.

A job is a run and a function that measures it. Its folder is an ordinary run directory with one more file,
the answer, which holds the function's return value. Workers are processes that take one job after another,
and end with the block that started them.
"""

from __future__ import annotations

import hashlib
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
from shoal.core.threads import cores
from shoal.engines.os_settings import die_with_parent
from shoal.runs.directory import RunDirectory
from shoal.runs.files import is_free, write_atomic
from shoal.runs.json_text import to_json
from shoal.runs.manifest import DamagedError
from shoal.runs.result import Result
from shoal.runs.resume import resume
from shoal.runs.runner import run
from shoal.spec import Spec
from shoal.terminal import bars

ANSWER = "answer.json"


class Job(NamedTuple):
    """A run, and the function that measures its result; the answer is plain data, kept as JSON."""

    name: str  # of its folder
    spec: Spec
    measure: Callable[[Result], Any]  # a module-level function, so that it can be pickled


class WorkerMessage(NamedTuple):
    """A report of a worker: a round is done, or, if `ended`, the whole job."""

    ended: bool = False
    error: str = ""
    user_error: bool = False  # whether the user can fix the error


@dataclass
class JobWorker:
    """A worker process, our end of its pipe, and its current job."""

    process: Any
    pipe: Connection
    job: Job | None = None
    rounds: int = 0  # of the job, reported so far


def kept_answers(jobs: Sequence[Job], folder: Path) -> dict[str, Any]:
    """The answers that are already in the folder, by the names of the jobs."""
    if len({job.name for job in jobs}) < len(jobs):
        raise ValueError("every job needs a name of its own")
    found = {}
    for job in jobs:
        path = folder / job.name
        if not is_free(path):
            directory = RunDirectory.reopen(path, job.spec)
            if (path / ANSWER).exists() and directory.finished:
                with suppress(DamagedError):  # a damaged answer is measured again
                    found[job.name] = _read(path)
    return found


@contextmanager
def worker_pool(jobs: Sequence[Job], folder: Path, workers: int = 0) -> Iterator[list[JobWorker]]:
    """Worker processes for the jobs, one per processor; they end with the block."""
    found: list[JobWorker] = []
    try:
        for _ in range(min(workers or cores(), len(jobs))):
            found.append(_start_worker(folder, found))
        yield found
    finally:
        for worker in found:
            worker.process.kill()
        for worker in found:
            worker.process.join()
            worker.pipe.close()


def run_jobs(
    workers: Sequence[JobWorker], jobs: Sequence[Job], folder: Path, watcher: Callable[[int], None]
) -> dict[str, Any]:
    """Run all jobs, and return their answers by name. `watcher` receives the total number of rounds done."""
    waiting, rounds, answers = deque(jobs), 0, {}
    for worker in workers:
        _assign(worker, waiting)
    while busy := {worker.pipe: worker for worker in workers if worker.job is not None}:
        for pipe in wait(list(busy)):
            worker = busy[pipe]  # type: ignore[index]
            job, message = _receive(worker)
            # a job that was resumed, or stopped early, reports fewer rounds than its spec has
            new = job.spec.rounds - worker.rounds if message.ended else 1
            worker.rounds += new
            rounds += new
            watcher(rounds)
            if message.ended:
                answers[job.name] = _read(folder / job.name)
                _assign(worker, waiting)
    return answers


def _start_worker(folder: Path, others: Sequence[JobWorker]) -> JobWorker:
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("fork" if "fork" in methods else None)
    here, there = context.Pipe()
    inherited = [here, *(worker.pipe for worker in others)] if "fork" in methods else []
    process = context.Process(target=_worker_main, args=(folder, there, inherited))
    process.start()
    there.close()
    return JobWorker(process, here)


def _assign(worker: JobWorker, waiting: deque[Job]) -> None:
    worker.job, worker.rounds = waiting.popleft() if waiting else None, 0
    if worker.job is not None:
        worker.pipe.send(worker.job)


def _receive(worker: JobWorker) -> tuple[Job, WorkerMessage]:
    assert worker.job is not None
    try:
        message: WorkerMessage = worker.pipe.recv()
    except EOFError:
        worker.process.join()
        raise StageError(
            f"the process of {worker.job.name} ended ({worker.process.exitcode}) before its job"
        ) from None
    if message.error:
        raise (SpecError if message.user_error else StageError)(f"{worker.job.name}: {message.error}")
    return worker.job, message


def _worker_main(folder: Path, pipe: Connection, inherited: Sequence[Connection]) -> None:
    """Run one job after another, until the pipe closes."""
    for connection in inherited:  # the parent's ends: left open here, they would hide its death from workers
        connection.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    die_with_parent()
    torch.set_num_threads(1)  # the parent's threads do not exist in this process
    with suppress(EOFError, OSError):
        while True:
            pipe.send(_run_job(pipe.recv(), folder, lambda record: pipe.send(WorkerMessage())))
    os._exit(0)


def _run_job(job: Job, folder: Path, watcher: Callable[[Mapping[str, Any]], None]) -> WorkerMessage:
    path = folder / job.name
    alone = replace(job.spec, engine=replace(job.spec.engine, workers=1))  # other cores run other jobs
    try:
        if not is_free(path):
            result = resume(path, watcher, report=False)
        else:
            result = run(alone, path, watcher, report=False)
        text = to_json(job.measure(result))
        write_atomic(path / ANSWER, f'{{"answer": {text}, "sha256": "{_sha256(text)}"}}\n'.encode())
    except SpecError as error:
        return WorkerMessage(True, str(error), True)
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        return WorkerMessage(True, f"{error}\n\nIn the process of the job:\n{trace}")
    return WorkerMessage(True)


def _read(path: Path) -> Any:
    """The answer in a folder; raises `DamagedError` if it has changed since it was written."""
    try:
        found = json.loads((path / ANSWER).read_text(encoding="utf-8"))
        answer, digest = found["answer"], found["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DamagedError(f"{path / ANSWER} is damaged") from None
    if _sha256(to_json(answer)) != digest:
        raise DamagedError(f"{path / ANSWER} is damaged")
    return answer


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def run_with_progress(title: str, jobs: Sequence[Job], folder: Path) -> dict[str, Any]:
    """Run all jobs under one progress bar, and return their answers by name."""
    # processes first: forking while another thread draws bars would also copy that thread's locks
    with worker_pool(jobs, folder) as workers, bars() as shown:
        watch = shown.add(title, sum(job.spec.rounds for job in jobs))
        return run_jobs(workers, jobs, folder, lambda rounds: watch({"round": rounds}))
