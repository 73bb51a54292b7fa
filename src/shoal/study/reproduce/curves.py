"""Learning curves of an experiment's rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.report.canvas import WIDTH
from shoal.report.charts import line_chart
from shoal.report.series import Against, Axis, Curve, seeds_curve
from shoal.study.reproduce.experiment import Picture
from shoal.study.reproduce.table_experiment import Results

ACCURACY = Axis("Test accuracy (%)", end=100)


def picture(
    name: str,
    title: str,
    remark: str,
    curves: Sequence[Curve],
    y: Axis,
    x: Against | Axis,
    width: float = WIDTH,
) -> Picture:
    """A line chart as a picture for the page."""
    figure = line_chart(curves, y, x, width)
    assert figure is not None
    return Picture(name, title, figure, remark)


def learning_curves(
    results: Results, column: str, name: str, title: str, remark: str, rows: Sequence[str] = ()
) -> Picture:
    """The accuracy over rounds in one column, for all rows or some of them.

    If answers do not list their rounds, these are 1, 2, ...
    """
    curves = []
    for slot, row in enumerate(rows or results.column(column)):
        answers = results.answers[row, column]
        values = np.array([answer["accuracies"] for answer in answers])
        rounds = np.array(answers[0].get("rounds", range(1, values.shape[1] + 1)), float)
        curves.append(seeds_curve(row, slot, rounds, values))
    return picture(name, title, remark, curves, ACCURACY, "rounds")
