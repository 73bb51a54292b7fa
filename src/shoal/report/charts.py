"""Charts of runs. Every function makes a `Figure` of its own and leaves no trace of it anywhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from shoal.core.errors import SpecError
from shoal.report.canvas import (
    HEAT,
    HEIGHT,
    INK,
    MUTED,
    STYLE,
    WIDTH,
    canvas,
    log_scale,
    look,
    short,
    spread_apart,
)
from shoal.report.runs import RunView, number
from shoal.report.series import QUANTITIES, Against, Curve, Quantity, metric_curves, percent
from shoal.report.table import byte_unit, comparison_rows, second_unit, stat_text

MOST_BANDS = 8  # lines with bands: of more, the bands would hide one another
_LINE = 13.5  # points between the labels of neighbouring lines
_STRIP = "#7d9bb5"  # quieter than the heat map beside it
_THOUSANDS = "{x:,.0f}"
_DECADES = 30.0  # a log scale where the largest value is so many times the smallest


def metric_chart(
    runs: Sequence[RunView], metric: str, against: Against = "rounds", width: float = WIDTH
) -> Figure | None:
    """A metric of each label; None where no run has measured it, or the cost is not known."""
    quantity = QUANTITIES.get(metric, Quantity(short(metric.replace("_", " ").capitalize())))
    return line_chart(metric_curves(runs, metric, against), quantity, against, width)


def metrics_chart(
    run: RunView, metrics: Mapping[str, str], quantity: Quantity, width: float = WIDTH
) -> Figure | None:
    """Several metrics of one run on one axis, given as metric -> label."""
    return line_chart(_side_by_side(run, metrics), quantity, "rounds", width)


def fairness_chart(run: RunView, width: float = WIDTH) -> Figure | None:
    """How well the clients are served: their mean with one deviation between them, and their worst tenth."""
    wanted = {
        "accuracy": "Global test set",
        "mean_client_accuracy": "Mean client",
        "worst_client_accuracy": "Worst tenth",
    }
    curves = _side_by_side(run, wanted)
    if not any(curve.slot for curve in curves):
        return None
    spread = metric_curves([run], "client_accuracy_std")
    for place, curve in enumerate(curves):
        if curve.slot == 1 and spread and np.array_equal(spread[0].x, curve.x):
            curves[place] = curve._replace(std=spread[0].mean)
    return line_chart(curves, percent("Accuracy"), "rounds", width)


def line_chart(
    curves: Sequence[Curve], quantity: Quantity, against: Against | Quantity, width: float = WIDTH
) -> Figure | None:
    """Lines with bands; several lines carry their names at the right, beside where they end.

    The x axis is a cost that runs have, or any other quantity; that one begins where the lines do.
    """
    if not curves:
        return None
    height = max(_height(width), (len(curves) + 2) * _LINE / 72 + 0.6)
    figure, axes = canvas(width, height)
    largest = max(float(curve.x.max()) for curve in curves)
    across = against if isinstance(against, Quantity) else _cost(against, largest)
    for curve in curves:
        _draw(axes, curve, across.factor, quantity.factor, band=len(curves) <= MOST_BANDS)
    axes.set_xlabel(across.title)
    axes.set_ylabel(quantity.title)
    _frame_x(axes, curves, against, across.factor, 7 if width >= WIDTH else 5)
    if quantity.end:
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, -0.01 * quantity.end), min(high, 1.01 * quantity.end))
    else:
        values = np.concatenate([curve.mean for curve in curves])
        if values.min() > 0 and values.max() > _DECADES * values.min():
            log_scale(axes, "y")
            axes.set_ylim(bottom=values.min() / 2)  # a band that reaches down to 0 would have no end
    if len(curves) > 1:
        _end_labels(axes, curves, quantity.factor, _LINE / (72 * (height - 0.7)))
    return figure


def final_chart(runs: Sequence[RunView], metric: str, width: float = WIDTH) -> Figure | None:
    """The final value of each label with its deviation over seeds, best at the top; each seed is a ring."""
    rows = comparison_rows(runs)
    quantity = percent("Final accuracy") if metric == "final_accuracy" else Quantity("Final MSE")
    known = [(slot, row.label, stat) for slot, row in enumerate(rows) if (stat := row.stat(metric))]
    if not known:
        return None
    known.sort(key=lambda entry: entry[2].mean, reverse=quantity.factor == 1)
    figure, axes = canvas(width, max(_height(width) - 0.2, 0.75 + 0.26 * len(known)))
    beside = axes.get_yaxis_transform()  # x in parts of the chart, y in data
    for place, (slot, label, stat) in enumerate(known):
        colour = look(slot)["color"]
        mean, std = quantity.factor * stat.mean, quantity.factor * stat.std
        axes.plot([mean - std, mean + std], [place, place], color=colour, linewidth=2, solid_capstyle="round")
        values = [number(run.summary.get(metric)) for run in runs if run.label == label]
        rings = [quantity.factor * value for value in values if value is not None]
        axes.plot(rings, [place] * len(rings), "o", color=colour, fillstyle="none", markersize=4, alpha=0.6)
        axes.plot([mean], [place], "o", color=colour, markersize=7)
        axes.text(1.02, place, stat_text(metric, stat), transform=beside, va="center", color=INK)
    axes.set_yticks(range(len(known)), [short(label) for _, label, _ in known])
    axes.tick_params(axis="y", labelcolor=INK, labelsize=10)
    axes.set_ylim(-0.6, len(known) - 0.4)
    axes.set_xlabel(quantity.title)
    return figure


def bar_chart(heights: np.ndarray, x_title: str, y_title: str, width: float = WIDTH) -> Figure:
    """Whole numbers as adjoining bars, counted from 1."""
    figure, axes = canvas(width, _height(width))
    edges = np.arange(len(heights) + 1) + 0.5
    axes.stairs(heights, edges, fill=True, color=_STRIP, linewidth=0)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, max(3, int(heights.max(initial=0))) * 1.08)
    axes.set_xlabel(x_title)
    axes.set_ylabel(y_title)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(_whole(7 if width >= WIDTH else 5))
    return figure


def _whole(ticks: int) -> MaxNLocator:
    return MaxNLocator(nbins=ticks, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)


def _height(width: float) -> float:
    return min(HEIGHT, 0.7 * width)  # small charts are a little taller in proportion


def _side_by_side(run: RunView, metrics: Mapping[str, str]) -> list[Curve]:
    return [
        curve._replace(label=label, slot=slot)
        for slot, (metric, label) in enumerate(metrics.items())
        for curve in metric_curves([run], metric)
    ]


def _draw(axes: Axes, curve: Curve, across: float, up: float, *, band: bool) -> None:
    style = look(curve.slot)
    x, mean, std = across * curve.x, up * curve.mean, up * curve.std
    if band and std.any():
        low, high = mean - std, mean + std
        axes.fill_between(x, low, high, color=style["color"], alpha=0.2, linewidth=0)
        if len(x) == 1:  # a band of no width shows nothing
            axes.plot([x[0], x[0]], [low[0], high[0]], color=style["color"], linewidth=1.2)
    axes.plot(x, mean, linewidth=1.8, marker="o" if len(x) <= 15 else "", markersize=4, **style)


def _cost(against: Against, largest: float) -> Quantity:
    if against == "rounds":
        return Quantity("Rounds")
    if against == "bytes":
        scale, unit = byte_unit(largest)
        return Quantity(f"Traffic, up and down ({unit})", 1 / scale)
    scale, unit = second_unit(largest)
    return Quantity(f"{'Time' if against == 'seconds' else 'Simulated time'} ({unit})", 1 / scale)


def _frame_x(
    axes: Axes, curves: Sequence[Curve], against: Against | Quantity, factor: float, ticks: int
) -> None:
    ends = [factor * float(curve.x[-1]) for curve in curves]
    if isinstance(against, Quantity):
        start = min(factor * float(curve.x[0]) for curve in curves)
        axes.set_xlim(start, start + (1.03 * (max(ends) - start) or 1))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=ticks, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter("{x:,g}" if max(ends) < 10 else _THOUSANDS)
        return
    # Ten times as dear is the least for a log scale: up to there all lines are seen well beside each other.
    if against != "rounds" and min(curve.x[0] for curve in curves) > 0 and max(ends) > 10 * min(ends):
        log_scale(axes, "x")
        return
    axes.set_xlim(0, 1.03 * max(ends) or 1)
    if against == "rounds":
        axes.xaxis.set_major_locator(_whole(ticks))
        axes.xaxis.set_major_formatter(_THOUSANDS)


def _end_labels(axes: Axes, curves: Sequence[Curve], factor: float, gap: float) -> None:
    axes.get_ylim()  # settles the limits, which the transform below does not ask for
    to_axes = axes.transScale + axes.transLimits
    ends = [float(to_axes.transform((1.0, factor * curve.mean[-1]))[1]) for curve in curves]
    for curve, place in zip(curves, spread_apart(ends, gap), strict=True):
        line = Line2D([1.02, 1.065], [place, place], linewidth=2.4, clip_on=False, **look(curve.slot))
        line.set_transform(axes.transAxes)
        axes.add_artist(line)
        axes.text(1.08, place, short(curve.label), transform=axes.transAxes, va="center", color=INK)


def partition_picture(counts: np.ndarray, names: Sequence[str], title: str) -> Figure:
    """Who holds what: `counts` [clients, classes] as a heat map, with the sums of both.

    `names` are those of the classes; without any they are numbered.
    """
    counts = np.asarray(counts)
    if counts.ndim != 2 or 0 in counts.shape:
        raise SpecError(
            f"a picture needs at least one client and one class, got counts of shape {counts.shape}; "
            "a regression has no classes to draw"
        )
    clients, classes = counts.shape
    labels = [short(str(name), 18) for name in names] or [str(i) for i in range(classes)]
    if len(labels) != classes:
        raise SpecError(f"names must name each of the {classes} classes, got {len(labels)}")
    cell = 0.62 if _annotated(clients, classes) else 0.3
    wide, tall = min(max(cell * clients, 4.2), 9.5), min(max(0.3 * classes, 1.5), 7.5)
    with matplotlib.rc_context({**STYLE, "figure.facecolor": "white", "savefig.facecolor": "white"}):
        figure = Figure(figsize=(wide + 2.9, tall + 2.0), layout="constrained", dpi=150)
        grid = figure.add_gridspec(2, 3, width_ratios=(wide, 1.0, 0.16), height_ratios=(0.85, tall))
        body = figure.add_subplot(grid[1, 0])
        top, side = figure.add_subplot(grid[0, 0], sharex=body), figure.add_subplot(grid[1, 1], sharey=body)
        bar = figure.add_subplot(grid[1, 2])
        _heat_map(figure, body, bar, counts)
        _strips(top, side, counts)
        _class_names(body, labels, tall)
        body.set_xlabel("Client")
        body.set_ylabel("Class")
        held = f"{clients:,} clients, {classes} classes, {int(counts.sum()):,} samples"
        figure.suptitle(
            f"{short(title, int(9 * (wide + 2.9)))}\n", x=0.012, ha="left", fontsize=13, color=INK
        )
        figure.text(0.012, 1 - 0.42 / (tall + 2.0), held, ha="left", va="center", fontsize=10, color=MUTED)
    return figure


def _annotated(clients: int, classes: int) -> bool:
    return clients <= 16 and classes <= 20


def _heat_map(figure: Figure, body: Axes, bar: Axes, counts: np.ndarray) -> None:
    held = counts[counts > 0]
    largest = max(int(counts.max()), 1)
    # Where a few cells are far above the others, a linear scale would show only them.
    uneven = held.size > 0 and largest > 8 * float(np.median(held))
    norm = PowerNorm(0.5, vmin=0, vmax=largest) if uneven else Normalize(0, largest)
    shown = np.ma.masked_equal(counts.T, 0)  # [classes, clients]; what a client lacks stays blank
    image = body.imshow(shown, aspect="auto", cmap=HEAT, norm=norm)
    body.set_facecolor("#f7f7f8")
    body.grid(visible=False)
    ticks = _root_ticks(largest) if uneven else _whole(6)
    label = f"Samples{' (square-root scale)' if uneven else ''}"
    scale = figure.colorbar(image, cax=bar, label=label, ticks=ticks, format=_THOUSANDS)
    scale.outline.set_visible(False)
    if _annotated(*counts.shape):
        for (client, kind), count in np.ndenumerate(counts):
            if count:
                ink = "white" if norm(count) > 0.55 else INK
                body.text(client, kind, f"{count:,}", ha="center", va="center", fontsize=8.5, color=ink)


def _root_ticks(largest: int) -> list[int]:
    # Round numbers from the top down, as far as there is room for them: a tenth of the scale each.
    kept = []
    above = 1.1
    for power in range(len(str(largest)), -1, -1):
        for tick in (5 * 10**power, 2 * 10**power, 10**power):
            place = (tick / largest) ** 0.5
            if 0.1 <= place <= min(1, above - 0.1):
                kept.append(tick)
                above = place
    return [0, *reversed(kept)]


def _strips(top: Axes, side: Axes, counts: np.ndarray) -> None:
    for axes, sums, lying in ((top, counts.sum(axis=1), False), (side, counts.sum(axis=0), True)):
        places = np.arange(len(sums))
        if len(sums) > 100:  # gaps help the eye only while they are wider than a pixel
            edges = np.arange(len(sums) + 1) - 0.5
            axes.stairs(
                sums, edges, orientation="horizontal" if lying else "vertical", fill=True, color=_STRIP
            )
        elif lying:
            axes.barh(places, sums, color=_STRIP)
        else:
            axes.bar(places, sums, color=_STRIP)
    top.tick_params(labelbottom=False)
    side.tick_params(labelleft=False)
    top.set_ylabel("Samples\na client")
    side.set_xlabel("Samples\na class")
    top.grid(visible=False, axis="x")
    side.grid(visible=False, axis="y")
    for axis in (top.yaxis, side.xaxis):
        axis.set_major_locator(_whole(3))
        axis.set_major_formatter(_THOUSANDS)


def _class_names(body: Axes, labels: Sequence[str], tall: float) -> None:
    # One name needs about 0.17 inches; of many, every fifth or so is shown.
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, len(labels)) if len(labels) / s * 0.17 <= tall)
    body.set_yticks(range(0, len(labels), step), labels[::step])
    body.xaxis.set_major_locator(_whole(12))
    body.spines["bottom"].set_visible(False)
