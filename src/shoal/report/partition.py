"""The picture of a partition: how many samples of each class each client holds."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from shoal.core.errors import SpecError
from shoal.report.canvas import HEAT, INK, MUTED, STYLE, THOUSANDS, draw_bars, short, whole_ticks


def partition_picture(counts: np.ndarray, clients: Sequence[int], population: int, title: str) -> Figure:
    """A heat map of `counts` [clients, classes], with the sums per client above and per class at the side.

    `clients` are the ids of the clients drawn: all of the `population`, or a sample of it.
    """
    if counts.ndim != 2 or 0 in counts.shape:
        raise SpecError(
            f"a picture needs at least one client and one class, got counts of shape {counts.shape}; "
            "a regression has no classes to draw"
        )
    shown, classes = counts.shape
    cell = 0.62 if _has_numbers(counts) else 0.3
    wide, tall = min(max(cell * shown, 4.2), 9.5), min(max(0.3 * classes, 1.5), 7.5)
    with matplotlib.rc_context({**STYLE, "figure.facecolor": "white", "savefig.facecolor": "white"}):
        figure = Figure(figsize=(wide + 2.9, tall + 2.0), layout="constrained", dpi=150)
        grid = figure.add_gridspec(2, 3, width_ratios=(wide, 1.0, 0.16), height_ratios=(0.85, tall))
        body = figure.add_subplot(grid[1, 0])
        top, side = figure.add_subplot(grid[0, 0], sharex=body), figure.add_subplot(grid[1, 1], sharey=body)
        _heat_map(figure, body, figure.add_subplot(grid[1, 2]), counts)
        _sums(top, side, counts)
        _name_rows_and_columns(body, clients, classes, tall)
        text = short(title, int(9 * (wide + 2.9)))
        figure.suptitle(f"{text}\n", x=0.012, ha="left", fontsize=13, color=INK)
        below = _what_is_shown(counts, population)
        figure.text(0.012, 1 - 0.42 / (tall + 2.0), below, ha="left", va="center", fontsize=10, color=MUTED)
    return figure


def _what_is_shown(counts: np.ndarray, population: int) -> str:
    clients, classes = counts.shape
    samples = f"{classes} classes, {int(counts.sum()):,} samples"
    if clients == population:
        return f"{clients:,} clients, {samples}"
    return f"{clients:,} of {population:,} clients (a fixed random sample), {samples}"


def _has_numbers(counts: np.ndarray) -> bool:
    """Whether the cells have room for their numbers."""
    return len(counts) <= 16 and len(counts[0]) <= 20


def _heat_map(figure: Figure, body: Axes, bar: Axes, counts: np.ndarray) -> None:
    held = counts[counts > 0]
    largest = max(int(counts.max()), 1)
    # If a few cells are far above the others, a linear scale would show only those.
    uneven = held.size > 0 and largest > 8 * float(np.median(held))
    norm = PowerNorm(0.5, vmin=0, vmax=largest) if uneven else Normalize(0, largest)
    drawn = np.ma.masked_equal(counts.T, 0)  # [classes, clients]; zeros stay blank
    image = body.imshow(drawn, aspect="auto", cmap=HEAT, norm=norm)
    body.set_facecolor("#f7f7f8")
    body.grid(visible=False)
    ticks = _root_ticks(largest) if uneven else whole_ticks(6)
    label = f"Samples{' (square-root scale)' if uneven else ''}"
    scale = figure.colorbar(image, cax=bar, label=label, ticks=ticks, format=THOUSANDS)
    scale.outline.set_visible(False)
    if _has_numbers(counts):
        for (client, kind), count in np.ndenumerate(counts):
            if count:
                ink = "white" if norm(count) > 0.55 else INK
                body.text(client, kind, f"{count:,}", ha="center", va="center", fontsize=8.5, color=ink)


def _root_ticks(largest: int) -> list[int]:
    """Round tick values for a square-root scale, at least a tenth of the scale apart."""
    kept = []
    above = 1.1
    for power in range(len(str(largest)), -1, -1):
        for tick in (5 * 10**power, 2 * 10**power, 10**power):
            place = (tick / largest) ** 0.5
            if 0.1 <= place <= min(1, above - 0.1):
                kept.append(tick)
                above = place
    return [0, *reversed(kept)]


def _sums(top: Axes, side: Axes, counts: np.ndarray) -> None:
    for axes, sums, lying in ((top, counts.sum(axis=1), False), (side, counts.sum(axis=0), True)):
        draw_bars(axes, sums, np.arange(len(sums) + 1) - 0.5, lying=lying)
    top.tick_params(labelbottom=False)
    side.tick_params(labelleft=False)
    top.set_ylabel("Samples\nper client")
    side.set_xlabel("Samples\nper class")
    top.grid(visible=False, axis="x")
    side.grid(visible=False, axis="y")
    for axis in (top.yaxis, side.xaxis):
        axis.set_major_locator(whole_ticks(3))
        axis.set_major_formatter(THOUSANDS)


def _name_rows_and_columns(body: Axes, clients: Sequence[int], classes: int, tall: float) -> None:
    def name(place: float, _: object) -> str:
        return f"{clients[int(place)]:,}" if 0 <= place < len(clients) else ""

    body.set_xlabel("Client")
    body.set_ylabel("Class")
    body.xaxis.set_major_locator(whole_ticks(12))
    body.xaxis.set_major_formatter(FuncFormatter(name))
    # One row needs about 0.17 inches; with many classes, only every fifth or so is labelled.
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, classes) if classes / s * 0.17 <= tall)
    body.set_yticks(range(0, classes, step))
    body.spines["bottom"].set_visible(False)
