"""The chart of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from shoal.core.errors import SpecError
from shoal.report.canvas import COLOURS, INK, MUTED, STYLE, WIDTH, canvas, log_scale, short

ORDER = ("shoal", "shoal-exact", "flower", "pfl")  # the position determines the colour of a contestant
_DECADES = 10.0  # the scale is logarithmic if the largest ratio exceeds the smallest by this factor
_BAR, _GAP = 0.21, 0.18  # inches: height of a bar, and gap between workloads


def bars(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """One bar per contestant: its speed relative to the plain loop, which is the line at 1."""
    shown = [row for row in rows if row["peer"] != "plain"]
    if not shown:
        raise SpecError("there is nothing to draw: no row but those of the plain loop")
    places, titles, height = _places(shown)
    with matplotlib.rc_context(STYLE):
        figure, axes = canvas(WIDTH, height + 1.0)
        ratios = [float(row["ratio_to_plain"]) for row in shown]
        log = max(*ratios, 1.0) > _DECADES * min(*ratios, 1.0)
        start = 1.0 if log else 0.0  # on a log scale there is no 0: bars extend from 1 to either side
        beside = axes.get_yaxis_transform()  # x in axes fractions, y in data coordinates
        for place, row, ratio in zip(places, shown, ratios):
            axes.barh(place, ratio - start, 0.84 * _BAR, start, color=_colour(row["peer"]))
            axes.text(1.02, place, _times(ratio), transform=beside, va="center", fontsize=9, color=INK)
        axes.axvline(1, color=INK, linewidth=1)
        axes.set_xlabel("Samples per second, relative to the plain PyTorch loop")
        if log:
            axes.set_xlim(min(*ratios, 1.0) / 1.5, max(*ratios, 1.0) * 1.5)
            log_scale(axes, "x")
        else:
            axes.set_xlim(0, 1.05 * max(*ratios, 1.0))
        axes.set_yticks(list(titles), [short(title) for title in titles.values()])
        axes.tick_params(axis="y", labelcolor=INK, labelsize=10)
        axes.set_ylim(height, -_GAP)
        axes.grid(False, axis="y")
        _legend(figure, {str(row["peer"]) for row in shown})
    return figure


def _places(rows: Sequence[Mapping[str, Any]]) -> tuple[list[float], dict[float, str], float]:
    """The position of each bar and of each workload's name, and the total height, in inches."""
    by_workload: dict[str, int] = {}
    for row in rows:
        by_workload[row["workload"]] = by_workload.get(row["workload"], 0) + 1
    tops, titles, top = {}, {}, 0.0
    for workload, count in by_workload.items():
        tops[workload] = top
        titles[top + _BAR * count / 2] = workload
        top += _BAR * count + _GAP
    places = []
    for row in rows:
        places.append(tops[row["workload"]] + _BAR / 2)
        tops[row["workload"]] += _BAR
    return places, titles, top


def _colour(peer: str) -> str:
    return COLOURS[ORDER.index(peer)] if peer in ORDER else MUTED


def _times(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.095 else f"{ratio:.2g}"


def _legend(figure: Figure, peers: set[str]) -> None:
    known = [peer for peer in ORDER if peer in peers]
    handles: list[Patch | Line2D] = [Patch(color=_colour(peer), label=peer) for peer in known]
    handles.append(Line2D([], [], color=INK, linewidth=1, label="plain loop"))
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), frameon=False, fontsize=9)
