"""Charts of virtual time: a Gantt chart of a round, with one bar per client, and of number formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from shoal.report.canvas import BAR, COLOURS, GRID, canvas

MOST_ROWS = 40  # if there are more rows, only the slowest are shown
ROW = 0.16  # inches
PARTS = {"down": COLOURS[5], "compute": COLOURS[0], "up": COLOURS[4]}  # receiving, computing, sending
NAMES = {"down": "receives", "compute": "computes", "up": "sends"}

Line = Mapping[str, Any]  # an entry of a record's `timeline`


def gantt_chart(lines: Sequence[Line], width: float) -> Figure | None:
    """One row per client, or per chain of clients; None if there is nothing to show."""
    finite = [line for line in lines if _end(line) < float("inf")]
    rows = _rows(finite)
    if not rows:
        return None
    figure, axes = canvas(width, 1.0 + ROW * max(len(rows), 8))
    last = max(_end(line) for line in finite)
    for place, (_, members) in enumerate(rows):
        _draw(axes, place, members, last)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, last)
    axes.set_xlabel("Virtual seconds since the round began")
    axes.grid(axis="y", visible=False)
    patches = [Patch(color=colour, label=NAMES[part]) for part, colour in PARTS.items()]
    patches += [Patch(color=GRID, label="waits")]
    if any(line.get("late") for line in finite):
        patches.append(Patch(facecolor="none", edgecolor=COLOURS[1], label="late"))
    figure.legend(handles=patches, loc="outside upper left", ncols=len(patches), frameon=False, fontsize=8)
    return figure


def bits_chart(rounds: Sequence[Line], width: float) -> Figure | None:
    """How often clients trained with each number of bits; None if the method assigns no formats."""
    found: Counter[int] = Counter()
    for record in rounds:
        for bits, members in zip(record.get("formats", ()), record.get("clusters", ()), strict=False):
            found[bits] += len(members)
    if not found:
        return None
    figure, axes = canvas(width, 3.5 * width / 6.2)
    order = sorted(found, reverse=True)
    axes.bar(range(len(order)), [found[bits] for bits in order], 0.6, color=BAR)
    axes.set_xticks(range(len(order)), [f"{bits} bits" for bits in order])
    axes.set_ylabel("Clients, over all rounds")
    axes.grid(axis="x", visible=False)
    return figure


def _rows(lines: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    """The label and lines of each row, the slowest last."""
    groups: dict[Any, list[Line]] = {}
    for line in lines:
        chain = line.get("chain")
        groups.setdefault(("client", line["client"]) if chain is None else ("chain", chain), []).append(line)
    rows = sorted(groups.items(), key=lambda item: max(map(_end, item[1])))[-MOST_ROWS:]
    return [(f"{kind} {name}", members) for (kind, name), members in rows]


def _draw(axes: Axes, place: int, members: Sequence[Line], last: float) -> None:
    ended = 0.0
    for line in sorted(members, key=lambda line: float(line["start"])):
        begin = float(line["start"])
        for part, colour in PARTS.items():
            axes.barh(place, float(line[part]), 0.72, begin, color=colour)
            begin += float(line[part])
        if line.get("late"):
            first = float(line["start"])
            axes.barh(place, begin - first, 0.9, first, fill=False, edgecolor=COLOURS[1])
        ended = max(ended, begin)
    if ended < last:
        axes.barh(place, last - ended, 0.3, ended, color=GRID)


def _end(line: Line) -> float:
    return float(line["start"]) + sum(float(line[part]) for part in PARTS)
