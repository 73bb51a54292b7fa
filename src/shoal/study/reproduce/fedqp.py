"""Weng et al., FedQP: its measure, and the analyses of its tables, learning curves and ablation."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.report.series import Axis, Curve, seeds_curve
from shoal.runs.result import Result
from shoal.study.reproduce.curves import ACCURACY, learning_curves, picture
from shoal.study.reproduce.datafile import Value
from shoal.study.reproduce.experiment import ComparisonTable, compared
from shoal.study.reproduce.table_experiment import Analysis, Results

FEDAVG, FEDMUT, FEDQP = "FedAvg", "FedMut", "FedQP"
PAPERS = (FEDAVG, "CluSamp", "FedNTD", "FedGen", FEDMUT, FEDQP)
FINAL = Value("accuracies", over_rounds="mean")  # the accuracy of a run: the mean over its last rounds
AUTO = "p = auto"
DRAWN = ("p = 0", "p = 0.1", "p = 0.3", "p = 0.5", "p = 0.8", AUTO)  # more lines would hide one another


def accuracy_curve(result: Result) -> dict[str, Any]:
    """The accuracy (%) of every evaluated round, and FedQP's mean effective momentum over the last ten."""
    evaluated = [record for record in result.records if record.get("accuracy") is not None]
    momenta = [record["effective_momentum"] for record in evaluated if "effective_momentum" in record]
    return {
        "rounds": [record["round"] for record in evaluated],
        "accuracies": [100 * record["accuracy"] for record in evaluated],
        "momentum": statistics.fmean(momenta[-10:]) if momenta else None,
    }


def rank(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """Count the columns in which FedQP is first among the paper's methods, and FedMut ahead of FedAvg."""
    first = ahead = 0
    for column in results.grid.columns:
        means = {cell.row: cell.ours or 0.0 for cell in tables[0].cells if cell.column == column}
        first += means[FEDQP] >= max(means[row] for row in PAPERS if row in means)
        ahead += means[FEDMUT] > means[FEDAVG]
    return Analysis(tables, words={"first": first, "ahead": ahead, "count": len(results.grid.columns)})


def figure3(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """The first round in which each method reaches FedAvg's final accuracy, and the learning curves."""
    over_seeds = results.text("{over_seeds}")
    cells = []
    for (row, column), answers in results.answers.items():
        ends = results.values((FEDAVG, column), FINAL)
        rounds = [first_round(answer, end) for answer, end in zip(answers, ends, strict=True)]
        cells.append(compared(row, column, None, rounds))
    remark = results.text(
        "The final accuracy is FedAvg's mean over the last {tail} rounds with the same seed. {over_seeds} "
        "Seeds that never reach it are left out."
    )
    soon = ComparisonTable(
        "First round at the accuracy with which FedAvg ends", cells, results.corner, 0, remark
    )
    pictures = [
        learning_curves(results, column, f"figure3-{place}", column, over_seeds)
        for place, column in enumerate(results.grid.columns, start=1)
    ]
    return Analysis([*tables, soon], pictures)


def first_round(answer: Mapping[str, Any], accuracy: float | None) -> float | None:
    """The first round with at least this accuracy; None if there is none."""
    pairs = zip(answer["rounds"], answer["accuracies"], strict=True)
    return next((float(r) for r, value in pairs if accuracy is not None and value >= accuracy), None)


def ablation(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """The best p, and the accuracy over p."""
    over_seeds = results.text("{over_seeds}")
    finals = {row: [v or 0.0 for v in results.values((row, ""), FINAL)] for row in results.grid.rows}
    means = {row: statistics.fmean(values) for row, values in finals.items()}
    auto = means.pop(AUTO)
    best = max(means, key=lambda row: means[row])
    x = np.array([results.grid.rows[row].spec["method"]["p"] for row in means])
    over_p = [
        seeds_curve("fixed", 0, x, np.array([finals[row] for row in means]).T),
        Curve("auto", 1, x[[0, -1]], np.full(2, np.mean(finals[AUTO])), np.zeros(2)),
    ]
    title = results.text(f"Learning curves, {results.corner}")
    rows = [row for row in DRAWN if row in finals]
    pictures = [
        learning_curves(results, "", "figure4", title, over_seeds, rows),
        picture("levels", "Accuracy of the last rounds", over_seeds, over_p, ACCURACY, Axis("p")),
    ]
    words = {"best": best, "best_accuracy": means[best], "auto_accuracy": auto}
    return Analysis(tables, pictures, words)
