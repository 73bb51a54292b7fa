"""An arena as heat maps of defences by attacks. Deep colours are good in all of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shoal.report.blocks import Cell, document, folded, heading, note, table, toml
from shoal.report.shades import Heat, Shade
from shoal.report.table import NOTHING

Cells = Sequence[Mapping[str, Any]]  # see `shoal.study.arena.cells`
HARM = "mean under attack"


class Face(NamedTuple):
    """A number of every cell, and the worst and the best that it can be; None: that it was."""

    field: str
    title: str
    remark: str
    worst: float | None = None
    best: float | None = None
    percent: bool = True


FACES = (
    Face(
        "accuracy",
        "Accuracy (%)",
        "After the last round, on the whole test set. The mean is over attacks that want nothing but harm.",
    ),
    Face("attack_success", "Success of targeted attacks (%)", "How often they have their way.", 1, 0),
    Face("tolerance", "Tolerance (%)", "Of the accuracy that the same defence has unattacked.", 0, 1),
    Face(
        "attackers_weight",
        "Weight given to attackers (%)",
        "Their share of all weights, mean over rounds, for defences that weigh their clients.",
        best=0,
    ),
    Face(
        "detection",
        "Detection",
        "The area under the ROC curve of weight against truth, mean over rounds: "
        "1 tells attackers from honest clients, 0.5 is blind.",
        0,
        1,
        percent=False,
    ),
)


def heats(cells: Cells) -> list[Heat]:
    """All heat maps for which there are numbers."""
    return [heat for face in FACES if (heat := _heat(face, cells))]


def _heat(face: Face, cells: Cells) -> Heat | None:
    """Without the rows and columns that have no number."""
    known = {
        (cell["defence"], cell["attack"]): float(cell[face.field])
        for cell in cells
        if cell[face.field] is not None
    }
    if not known:
        return None
    columns = list(dict.fromkeys(attack for _, attack in known))
    lowest, highest = min(known.values()), max(known.values())
    worst = (highest if face.best == 0 else lowest) if face.worst is None else face.worst
    best = highest if face.best is None else face.best
    if face.field == "accuracy" and (means := _means(cells)):
        known |= {(defence, HARM): mean for defence, mean in means.items()}
        columns.append(HARM)
    rows = {
        defence: [_shade(face, known.get((defence, attack)), worst, best) for attack in columns]
        for defence in dict.fromkeys(defence for defence, _ in known)
    }
    return Heat(face.title, face.remark, columns, rows)


def _shade(face: Face, value: float | None, worst: float, best: float) -> Shade:
    if value is None:
        return Shade(NOTHING)
    text = f"{100 * value:.1f}" if face.percent else f"{value:.2f}"
    return Shade(text, (value - worst) / (best - worst) if best != worst else 1.0)


def _means(cells: Cells) -> dict[str, float]:
    """The mean accuracy of each defence over the attacks that want nothing but harm."""
    harmed: dict[str, list[float]] = {}
    for cell in cells:
        if cell["degradation"] is not None and cell["attack_success"] is None:
            harmed.setdefault(cell["defence"], []).append(cell["accuracy"])
    return {defence: statistics.fmean(values) for defence, values in harmed.items()}


def arena_page(title: str, facts: Mapping[str, str], cells: Cells, settings: Mapping[str, Any]) -> str:
    """One HTML page without any outside part. `settings` are what all runs share, with dotted keys."""
    body = []
    for heat in heats(cells):
        head = [Cell("Defence", "text"), *(Cell(column.replace("_", " "), "heat") for column in heat.columns)]
        rows = [
            [Cell(defence, "text"), *(Cell(shade.text, "heat", depth=shade.depth) for shade in shades)]
            for defence, shades in heat.rows.items()
        ]
        body += [heading(heat.title), table(head, rows), note(heat.remark)]
    several = any(cell["std"] for cell in cells)
    body.append(note("All numbers are means over seeds; arena.json has the deviations.") if several else "")
    body += [heading("Settings"), folded("What all runs share", toml(settings))]
    return document(title, "Arena", facts, "", body)
