"""Guo et al., GENE-FL: its measures, and the analyses of its figures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from shoal.report.series import Axis, seeds_curve
from shoal.runs.result import Result
from shoal.study.newcomers import EPOCHS, starts_compared
from shoal.study.reproduce.curves import ACCURACY, learning_curves, picture
from shoal.study.reproduce.experiment import ComparisonTable, Picture, compared
from shoal.study.reproduce.table_experiment import Analysis, Results

MIB, GIB = 2.0**20, 2.0**30
STARTS = ("random", "gene", "gene with head", "cluster model", "global model", "fresh head")
ROUNDS_SINCE = Axis("Rounds since arrival")


def client_curve(result: Result) -> dict[str, Any]:
    """The summary, the mean accuracy (%) of the clients' models by evaluated round, and the upload in GiB.

    If newcomers arrived, also the size of the first message to one of them in MiB, taken from the first round
    with newcomers only.
    """
    evaluated = [r for r in result.records if r.get("mean_client_accuracy") is not None]
    known = result.setup.federation.engine.clients(0)
    new = [r for r in result.records if r["cohort"] and not any(c in known for c in r["cohort"])]
    start = new[0]["bytes_down"] / len(new[0]["cohort"]) / MIB if new else None
    return {
        **result.summary,
        "rounds": [record["round"] for record in evaluated],
        "accuracies": [100 * record["mean_client_accuracy"] for record in evaluated],
        "uploaded": [total / GIB for total in accumulate(r["bytes_up"] for r in result.records)],
        "start_mib": start,
    }


def figure3(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """The newcomers' learning curves."""
    before, remark = int(results.scale.values["before"]), results.text("{over_seeds}")
    pictures = []
    for place, column in enumerate(results.grid.columns, start=1):
        curves = []
        for slot, (row, answers) in enumerate(results.column(column).items()):
            rounds = np.array(answers[0]["rounds"], float) - before
            values = np.array([answer["accuracies"] for answer in answers])[:, rounds > 0]
            curves.append(seeds_curve(row, slot, rounds[rounds > 0], values))
        pictures.append(picture(f"figure3-{place}", column, remark, curves, ACCURACY, ROUNDS_SINCE))
    return Analysis(tables, pictures)


def figure5(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """The cumulative upload over rounds."""
    pictures = []
    for place, column in enumerate(results.grid.columns, start=1):
        curves = []
        for slot, (row, answers) in enumerate(results.column(column).items()):
            values = np.array([answer["uploaded"] for answer in answers])
            curves.append(seeds_curve(row, slot, np.arange(1.0, values.shape[1] + 1), values))
        name, remark = f"figure5-{place}", results.text("{over_seeds}")
        pictures.append(picture(name, column, remark, curves, Axis("Upload (GiB)"), "rounds"))
    return Analysis(tables, pictures)


def figure6(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """The known clients' learning curves."""
    pictures = [
        learning_curves(results, column, f"figure6-{place}", column, results.text("{over_seeds}"))
        for place, column in enumerate(results.grid.columns, start=1)
    ]
    return Analysis(tables, pictures)


# -- starting points


def starts_of(result: Result) -> dict[str, Any]:
    """The newcomers' accuracy by starting point."""
    return starts_compared(result)


def newcomers(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """Accuracy after some local epochs by starting point, and the cost of the start."""
    shown, pictures, remark = [], [], results.text("{over_seeds}")
    for place, column in enumerate(results.grid.columns, start=1):
        found = _by_start(results, column)
        title = f"Accuracy (%) after local epochs, {column}"
        shown.append(ComparisonTable(title, _accuracies(found), "start", 1, remark))
        cells = [
            compared(start, "MiB", None, [answer["bytes"] / MIB for answer in answers])
            for start, answers in found.items()
        ]
        shown.append(ComparisonTable(f"Cost of the start, {column}", cells, "start", 3))
        pictures.append(_starts_picture(found, column, place, remark))
    return Analysis(shown, pictures)


def _by_start(results: Results, column: str) -> dict[str, list[Any]]:
    """The answers of all seeds by starting point; if several methods have one, the first method's counts."""
    found: dict[str, list[Any]] = {}
    for start in STARTS:
        for answers in results.column(column).values():
            if start not in found and start in answers[0]:
                found[start] = [answer[start] for answer in answers]
    return found


def _accuracies(found: dict[str, list[Any]]) -> list[Any]:
    return [
        compared(
            start,
            f"{count} epoch{'s' * (count != 1)}",
            None,
            [100 * answer["accuracies"][i] for answer in answers],
        )
        for start, answers in found.items()
        for i, count in enumerate(EPOCHS)
    ]


def _starts_picture(found: dict[str, list[Any]], column: str, place: int, remark: str) -> Picture:
    epochs = np.array(EPOCHS, float)
    curves = [
        seeds_curve(start, slot, epochs, np.array([[100 * v for v in a["accuracies"]] for a in answers]))
        for slot, (start, answers) in enumerate(found.items())
    ]
    return picture(f"newcomers-{place}", column, remark, curves, ACCURACY, Axis("Local epochs"))
