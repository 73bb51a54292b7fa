"""An experiment small enough for a test: three runs of the toy federation."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import numpy as np
import torch
from toy import spec

from shoal.report.charts import line_chart
from shoal.report.series import Axis, Curve
from shoal.runs.result import Result
from shoal.study.jobs import Job
from shoal.study.reproduce.experiment import (
    ComparisonTable,
    Experiment,
    Findings,
    PaperNumber,
    Picture,
    RunJobs,
    compared,
)


def accuracy(result: Result) -> dict[str, Any]:
    return {"accuracies": [record["accuracy"] for record in result.records], "nan": float("nan")}


def fails(result: Result) -> None:
    raise ZeroDivisionError("divided by nothing")


def dies(result: Result) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def job(seed: int, measure: Any = accuracy, rounds: int = 2) -> Job:
    return Job(f"seed{seed}", spec(seed=seed, rounds=rounds, evaluate={"every": 1, "clients": 0}), measure)


def performed(run_jobs: RunJobs, *, seeds: int, rounds: int = 2) -> Findings:
    answers = run_jobs([job(seed, rounds=rounds) for seed in range(seeds)])
    finals = [100 * answer["accuracies"][-1] for answer in answers.values()]
    curve = np.array(answers["seed0"]["accuracies"])
    figure = line_chart(
        [Curve("seed 0", 0, 1.0 + np.arange(len(curve)), curve, 0 * curve)],
        Axis("Accuracy"),
        Axis("Rounds"),
    )
    assert figure is not None
    table = ComparisonTable(
        "Accuracy", [compared("toy", "final (%)", 75.0, finals), PaperNumber("toy", "nothing", None, None)]
    )
    return Findings(
        [table], [Picture("curve", "A <curve>", figure)], ["Told <apart>."], {"Seeds": str(seeds)}
    )


TINY = Experiment(
    "Table 0: a toy",
    "Nobody, Nothing",
    {"quick": partial(performed, seeds=3), "machine": partial(performed, seeds=4)},
)
CATALOGUE = {"toy-table0": TINY}


def product(result: Result) -> float:
    """A product large enough for torch to spread it over threads, if it may."""
    return float((torch.ones(512, 512) @ torch.ones(512, 512))[0, 0])
