"""Run an experiment, and write its folder: runs, numbers, pictures and a page.

experiment.json    name and scale, and the seconds spent on it so far
runs/              a run directory for each job, with the answer
result.json        the paper's numbers next to ours
report.html, *.png
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from shoal.config import unknown
from shoal.core.errors import SpecError
from shoal.core.threads import cores
from shoal.runs.directory import REPORT
from shoal.runs.files import is_free, write_atomic
from shoal.runs.json_text import to_json
from shoal.runs.runner import environment
from shoal.study.jobs import Job, kept_answers, run_with_progress
from shoal.study.reproduce.experiment import SCALES, Experiment, Findings, RunJobs
from shoal.study.reproduce.page import page
from shoal.study.reproduce.table_experiment import TableExperiment

EXPERIMENT, RESULT, RUNS = "experiment.json", "result.json", "runs"


class Reproduction(NamedTuple):
    """A finished experiment."""

    findings: Findings
    result: Mapping[str, Any]  # the content of result.json
    fresh: int  # number of runs made by this call
    kept: int  # number of runs that were in the folder already


def chosen(
    name: str, scale: str, catalogue: Mapping[str, Experiment], only: str = ""
) -> Callable[[RunJobs], Findings]:
    """The experiment's function at that scale, for all columns or those with `only` in their names."""
    if name not in catalogue:
        raise unknown(name, name, catalogue, "experiment")
    if scale not in SCALES:
        raise SpecError(f"--scale must be one of {', '.join(SCALES)}; got {scale!r}")
    has: Mapping[str, Any] = catalogue[name].scales  # type: ignore[assignment]
    if scale not in has:
        raise SpecError(f"{name} has no scale {scale}; it has: {', '.join(has)}")
    found: Callable[[RunJobs], Findings] = has[scale]
    if not only:
        return found
    if not isinstance(found, TableExperiment):
        raise SpecError(f"--only chooses columns of a table, and {name} is none")
    return found.of_columns(only)


def perform(
    name: str, scale: str, out: Path, catalogue: Mapping[str, Experiment], only: str = ""
) -> Reproduction:
    """Run the parts of the experiment that are missing in `out`, and write the result there."""
    function = chosen(name, scale, catalogue, only)
    folder = ExperimentFolder(name, scale, out)
    findings = function(folder.run_jobs)
    result = {
        "name": name,
        "scale": scale,
        "cells": [{"table": t.title, **cell._asdict()} for t in findings.tables for cell in t.cells],
        "seconds": folder.seconds,
        "notes": findings.notes,
        "pictures": [f"{picture.name}.png" for picture in findings.pictures],
        "command": shlex.join(
            [
                "shoal",
                "reproduce",
                name,
                "--scale",
                scale,
                *(["--only", only] if only else []),
                "--out",
                str(out),
            ]
        ),
        "version": version("shoal"),
        "environment": f"{environment()}, {cores()} processors",
    }
    for picture in findings.pictures:
        picture.figure.savefig(out / f"{picture.name}.png", dpi=150, facecolor="white")
    write_atomic(out / REPORT, page(catalogue[name], findings, result, folder.jobs).encode())
    write_atomic(out / RESULT, (to_json(result, indent=2) + "\n").encode())
    return Reproduction(findings, result, folder.fresh, len(folder.jobs) - folder.fresh)


class ExperimentFolder:
    """The folder of an experiment, which may hold runs from earlier calls."""

    def __init__(self, name: str, scale: str, out: Path) -> None:
        self.jobs: list[Job] = []
        self.fresh = 0
        self._name, self._scale, self._out = name, scale, out
        self.seconds = self._claimed()  # spent on runs, by all calls together

    def run_jobs(self, jobs: Sequence[Job]) -> dict[str, Any]:
        """The answers of all jobs: those in the folder are kept, the others are run."""
        folder = self._out / RUNS
        answers = kept_answers(jobs, folder)
        missing = [job for job in jobs if job.name not in answers]
        self.jobs += jobs
        self.fresh += len(missing)
        if missing:
            with self._timed():
                answers |= run_with_progress(self._name, missing, folder)
        return answers

    def _claimed(self) -> float:
        """Claim the folder, or check that it holds this experiment; returns the seconds spent so far."""
        path, wanted = self._out / EXPERIMENT, (self._name, self._scale)
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            if (found["name"], found["scale"]) != wanted:
                raise SpecError(
                    f"{self._out} holds {found['name']} at scale {found['scale']}, not {wanted[0]} at scale "
                    f"{wanted[1]}; choose another --out"
                )
            return float(found["seconds"])
        if not is_free(self._out):
            raise SpecError(f"{self._out} already holds other files; choose another --out")
        try:
            self._out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SpecError(f"{self._out} cannot be made: {error.strerror}; choose another --out") from None
        self._write_seconds(0.0)
        return 0.0

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Add the time spent in the block, however it ends."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started
            self._write_seconds(self.seconds)

    def _write_seconds(self, seconds: float) -> None:
        known = {"name": self._name, "scale": self._scale, "seconds": seconds}
        write_atomic(self._out / EXPERIMENT, (to_json(known, indent=2) + "\n").encode())
