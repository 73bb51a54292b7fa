"""Zeng, Self-adaptive Federated Swarm Intelligence: handwritten digits, figures 9 and 10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from shoal.report.heatmap_figure import heat_map
from shoal.report.series import Axis, Curve
from shoal.runs.result import Result
from shoal.study.reproduce.curves import picture
from shoal.study.reproduce.experiment import ComparisonTable, Picture, compared
from shoal.study.reproduce.table_experiment import Analysis, Results

CLASSES = [str(digit) for digit in range(10)]
OURS, AUTHORS = "[0, 0.01), exact", "[0, 1), shifted"  # where particles start, and the loss


def confusion_of(result: Result) -> dict[str, Any]:
    """The confusion matrix of the test set, and the loss of each model after each round."""
    data = result.dataset
    with torch.no_grad():  # sigmoids, since the models' raw outputs differ by orders of magnitude
        # in float64 like the run's own evaluation: in float32 too many of them would round to 1
        predicted = torch.sigmoid(result.model().double()(data.x_test.double())).argmax(1)
    counts = np.zeros((data.classes, data.classes), int)
    np.add.at(counts, (data.y_test.numpy(), predicted.numpy()), 1)
    return {"confusion": counts.tolist(), "losses": [record["problem_losses"] for record in result.records]}


def digits(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """Accuracy overall and for each digit, confusion matrix and training curves."""
    found = results.column("")
    matrices = {row: [np.array(a["confusion"]) for a in answers] for row, answers in found.items()}
    seeds = "Seeds: " + ", ".join(f"{len(answers)} of {row}" for row, answers in found.items()) + "."
    accuracy, each = results.numbers["accuracy"], results.numbers["digits"]
    overall = [
        compared(
            row, "accuracy (%)", accuracy.find(row, "accuracy (%)"), [100 * m.trace() / m.sum() for m in some]
        )
        for row, some in matrices.items()
    ]
    by_digit = [
        compared(name, row, each.find("accuracy", name), [100 * m[i, i] / m[i].sum() for m in some])
        for i, name in enumerate(CLASSES)
        for row, some in matrices.items()
    ]
    remark = f"{seeds} The paper has one number, shown next to all rows; the author's code has {AUTHORS}."
    return Analysis(
        [
            ComparisonTable("All digits", overall, results.corner, remark=remark),
            ComparisonTable("Each digit, accuracy (%)", by_digit, "digit", 1, seeds),
        ],
        _pictures(found[OURS][0], int(results.context["method"]["epochs"])),
    )


def _pictures(answer: Mapping[str, Any], epochs_a_round: int) -> list[Picture]:
    matrix = np.array(answer["confusion"], float)
    matrix[matrix == 0] = np.nan
    heat = heat_map(matrix, CLASSES, CLASSES, ("True digit", "Predicted digit"), "Test digits", root=True)
    losses = np.array(answer["losses"], float)  # [rounds, models]
    x = (1.0 + np.arange(len(losses))) * epochs_a_round
    curves = [
        Curve(f"model {name}", place, x, losses[:, place], np.zeros(len(x)))
        for place, name in enumerate(CLASSES)
    ]
    remark, loss = f"Initial range {OURS} loss, seed 0.", Axis("Training loss of the best particle")
    return [
        Picture("figure9", "Confusion of the test set", heat, f"{remark} 100 digits of each class."),
        picture("figure10", "Training of the ten models", remark, curves, loss, Axis("Epochs")),
    ]
