"""The page of an arena: heat maps of defences by attacks. In all of them, a deep colour is a good result."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shoal.report.heatmap_cells import HeatMap, HeatMapCell
from shoal.report.page_parts import PageTable, TableCell, document, toml
from shoal.report.table import NOTHING

Cells = Sequence[Mapping[str, Any]]  # see `shoal.study.arena.cells`
HARM = "mean under attack"
_SPAN = 0.1  # minimum range of a colour scale, lest noise look like a difference


class HeatMetric(NamedTuple):
    """A metric shown as a heat map. Without `worst` or `best`, its scale ends at the observed extremes."""

    field: str  # its name in a cell
    title: str
    remark: str
    worst: float | None = None
    best: float | None = None
    percent: bool = True


HEAT_METRICS = (
    HeatMetric(
        "accuracy",
        "Accuracy (%)",
        "Mean over the last ten rounds and over seeds, on the whole test set. The last column is the mean "
        "over untargeted attacks. Without colour: the defence is poor even without an attack.",
    ),
    HeatMetric(
        "of_oracle",
        "Share of the oracle's accuracy (%)",
        "Relative to uniform FedAvg over the honest clients alone (the oracle), seed by seed.",
        0.5,
        1,
    ),
    HeatMetric(
        "worst_of_oracle",
        "The same, worst seed (%)",
        "The seed with the worst result for the defence.",
        0.5,
        1,
    ),
    HeatMetric(
        "attack_success",
        "Success of targeted attacks (%)",
        "How often the global model predicts the attackers' target.",
        1,
        0,
    ),
    HeatMetric(
        "tolerance",
        "Tolerance (%)",
        "Accuracy under attack as a share of the same defence's accuracy without an attack.",
        0,
        1,
    ),
    HeatMetric(
        "attackers_weight",
        "Weight given to attackers (%)",
        "The attackers' share of the aggregation weights, averaged over rounds, for defences with weights.",
        best=0,
    ),
    HeatMetric(
        "attackers_step_share",
        "Attackers' share of the step (%)",
        "The length of the attackers' contribution along the server step, relative to the step's length: the "
        "largest value of the last ten rounds, for defences that add up updates.",
        best=0,
    ),
    HeatMetric(
        "detection",
        "Detection",
        "How well the weights separate attackers from honest clients: the area under the ROC curve, averaged "
        "over rounds. 1 is perfect, 0.5 is chance.",
        0,
        1,
        percent=False,
    ),
)


def heats(cells: Cells) -> list[HeatMap]:
    """The heat maps that contain numbers."""
    return [heat for metric in HEAT_METRICS if (heat := _heat(metric, cells))]


def _heat(metric: HeatMetric, cells: Cells) -> HeatMap | None:
    """One heat map, without empty rows and columns."""
    known = {
        (cell["defence"], cell["attack"]): float(cell[metric.field])
        for cell in cells
        if cell[metric.field] is not None
    }
    if not known:
        return None
    columns = list(dict.fromkeys(attack for _, attack in known))
    lowest, highest = min(known.values()), max(known.values())
    best = highest if metric.best is None else metric.best
    furthest = max(highest, best + _SPAN) if metric.best == 0 else min(lowest, best - _SPAN)
    worst = furthest if metric.worst is None else metric.worst
    if metric.field == "accuracy" and (means := _means(cells)):
        known |= {(defence, HARM): mean for defence, mean in means.items()}
        columns.append(HARM)
    poor = {cell["defence"] for cell in cells if cell["poor"]}
    rows = {
        defence: [
            _shade(metric, known.get((defence, attack)), worst, best, grey=defence in poor)
            for attack in columns
        ]
        for defence in dict.fromkeys(defence for defence, _ in known)
    }
    return HeatMap(metric.title, metric.remark, columns, rows)


def _shade(metric: HeatMetric, value: float | None, worst: float, best: float, *, grey: bool) -> HeatMapCell:
    if value is None:
        return HeatMapCell(NOTHING)
    text = f"{100 * value:.1f}" if metric.percent else f"{value:.2f}"
    if grey:
        return HeatMapCell(text)
    return HeatMapCell(text, (value - worst) / (best - worst) if best != worst else 1.0)


def _means(cells: Cells) -> dict[str, float]:
    """The mean accuracy of each defence over untargeted attacks."""
    harmed: dict[str, list[float]] = {}
    for cell in cells:
        if cell["degradation"] is not None and cell["attack_success"] is None:
            harmed.setdefault(cell["defence"], []).append(cell["accuracy"])
    return {defence: statistics.fmean(values) for defence, values in harmed.items()}


def arena_page(title: str, facts: Mapping[str, str], cells: Cells, settings: Mapping[str, Any]) -> str:
    """Render one self-contained HTML page. `settings` are those shared by all runs, with dotted keys."""
    return document(
        "arena.html",
        title,
        "Arena",
        facts,
        None,
        heats=[(heat, _page_table(heat)) for heat in heats(cells)],
        repeated=any(cell["std"] for cell in cells),
        settings=toml(settings),
    )


def _page_table(heat: HeatMap) -> PageTable:
    head = [TableCell(column.replace("_", " "), "heat") for column in heat.columns]
    rows = [
        [TableCell(defence, "text"), *(TableCell(shade.text, "heat", depth=shade.depth) for shade in shades)]
        for defence, shades in heat.rows.items()
    ]
    return PageTable([TableCell("Defence", "text"), *head], rows)
