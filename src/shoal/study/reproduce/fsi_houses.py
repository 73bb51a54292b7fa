"""Zeng, Self-adaptive Federated Swarm Intelligence: house prices, Table 1 and figures 7 and 8."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from shoal.report.canvas import WIDTH
from shoal.report.series import Axis, Curve
from shoal.runs.build import load_dataset
from shoal.runs.result import Result
from shoal.spec import TaskSpec
from shoal.study.reproduce.curves import picture
from shoal.study.reproduce.experiment import ComparisonTable, PaperNumber, Picture
from shoal.study.reproduce.table_experiment import Analysis, Results

REACHED = 0.0005  # largest distance from the error of least squares that counts as reached
FROZEN = 1e-20  # below this step size, without mutation, positions in float64 no longer change


def error_of(result: Result) -> dict[str, Any]:
    """The test error after each round, and the training error and step size after the last one."""
    last = result.records[-1]
    return {
        "errors": [record["mse"] for record in result.records],
        "training_error": last["best_loss"],
        "step_size": last["step_size"],
    }


def least_squares() -> tuple[float, np.ndarray]:
    """The test error of least squares on all clients' rows, and its coefficients, the intercept first."""
    data = load_dataset(TaskSpec("boston", "linear"))

    def with_one(x: torch.Tensor) -> np.ndarray:
        return np.column_stack([np.ones(len(x)), x.double().numpy()])

    found = np.linalg.lstsq(with_one(data.x_train), data.y_train.double().numpy(), rcond=None)[0]
    residuals = with_one(data.x_test) @ found - data.y_test.double().numpy()
    return float(np.mean(residuals**2)), found


def table1(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """Count how often the swarm reaches the least-squares error, and add least squares itself."""
    best, coefficients = least_squares()
    benchmark, papers = results.numbers["least_squares"], results.numbers["coefficients"]
    shown = [
        *tables,
        _endings(results, best),
        ComparisonTable(
            "Benchmark",
            [PaperNumber("least squares", "test MSE", benchmark.find("least squares", "test MSE"), best)],
            decimals=4,
        ),
        ComparisonTable(
            "Coefficients of least squares",
            [
                PaperNumber(name, "coefficient", papers.find(name, "coefficient"), float(ours))
                for name, ours in zip(papers.lines, coefficients, strict=True)
            ],
            decimals=6,
        ),
    ]
    mixed = [
        cell for cell, key in zip(tables[0].cells, results.answers, strict=True) if mutates(results, key)
    ]
    lower = sum(c.ours is not None and c.paper is not None and c.ours < c.paper for c in mixed)
    return Analysis(shown, words={"lower": lower, "mixed": len(mixed)})


def mutates(results: Results, cell: tuple[str, str]) -> bool:
    """Whether particles mutate in these runs."""
    method = results.grid.table(cell)["method"]
    return bool(method["w1"] + method["w2"] < 1)


def _endings(results: Results, best: float) -> ComparisonTable:
    """A table of how the swarms without mutation ended."""
    cells = []
    for row, column in sorted(results.answers):
        if mutates(results, (row, column)):
            continue
        answers = results.answers[row, column]
        reached = [abs(answer["errors"][-1] - best) <= REACHED for answer in answers]
        frozen = [not r and a["step_size"] < FROZEN for r, a in zip(reached, answers, strict=True)]
        counts = {
            "at least squares": sum(reached),
            "frozen short of it": sum(frozen),
            "still moving": len(answers) - sum(reached) - sum(frozen),
        }
        label = f"{row}, {column}"
        cells += [PaperNumber(label, name, None, float(count)) for name, count in counts.items()]
    remark = (
        f"Numbers of seeds. At least squares: the test error is within {REACHED} of it. Frozen: the step "
        f"size has fallen below {FROZEN:g}, so that positions no longer change."
    )
    return ComparisonTable("How the swarms without mutation ended", cells, decimals=0, remark=remark)


def figure7(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """The test error over epochs with an adaptive step size, for w1 = 0."""
    first = int(results.context["first_epoch"])
    remark = f"w1 = 0, adaptive step size, from epoch {first:,} on."
    return Analysis(tables, [_curves(results, "figure7", remark, first)])


def figure8(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """The test error over epochs, with the adaptive step size and with fixed ones."""
    test, training = (
        [cell for cell in tables[0].cells if cell.column == column] for column in tables[0].columns
    )
    words = {"lowest_test": _lowest(test), "lowest_training": _lowest(training)}
    return Analysis(tables, [_curves(results, "figure8", "w1 = 0, w2 = 0.6.")], words)


def _lowest(cells: Sequence[PaperNumber]) -> str:
    return min(cells, key=lambda cell: math.inf if cell.ours is None else cell.ours).row


def _curves(results: Results, name: str, remark: str, first_epoch: int = 0) -> Picture:
    """Draw medians over seeds: means would be dominated by swarms that are still far away."""
    curves = []
    for slot, (row, answers) in enumerate(results.column("").items()):
        values = np.median([answer["errors"] for answer in answers], 0)
        x = (1.0 + np.arange(len(values))) * int(results.context["method"]["epochs"])
        shown = x >= first_epoch
        curves.append(Curve(row, slot, x[shown], values[shown], np.zeros(shown.sum())))
    seeds = f"Lines are medians over {results.grid.seeds} seeds." if results.grid.seeds > 1 else "One seed."
    axes = Axis("Test MSE"), Axis("Epochs")
    return picture(name, "Test MSE over epochs", f"{remark} {seeds}", curves, *axes, 1.3 * WIDTH)
