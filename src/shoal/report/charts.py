"""Charts of runs. Every function returns a new `Figure`; no global state of matplotlib changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from shoal.report.canvas import (
    HEIGHT,
    INK,
    THOUSANDS,
    WIDTH,
    canvas,
    draw_bars,
    line_style,
    log_scale,
    short,
    spread_apart,
    whole_ticks,
)
from shoal.report.runs import RunView, number
from shoal.report.series import METRIC_AXES, Against, Axis, Curve, Histogram, metric_curves, percent
from shoal.report.table import byte_unit, comparison_rows, second_unit, stat_text

MOST_BANDS = 8  # with more lines than this, the bands would hide one another
FINAL_AXES = {
    "final_accuracy": percent("Final accuracy"),
    "final_mse": Axis("Final MSE"),
    "mean_client_accuracy": percent("Mean client accuracy"),
}
_LINE = 13.5  # points between the labels of neighbouring lines
_SPAN = 0.1  # minimum range of an axis, as a share of 0 to 100 %, lest noise look like a difference
_FAR = 30.0  # values whose ratio exceeds this are too far apart for a linear scale


def metric_chart(
    runs: Sequence[RunView], metric: str, against: Against = "rounds", width: float = WIDTH
) -> Figure | None:
    """One line of the metric per label; None if no run has measured it, or if the cost is unknown."""
    axis = METRIC_AXES.get(metric, Axis(short(metric.replace("_", " ").capitalize())))
    return line_chart(metric_curves(runs, metric, against), axis, against, width)


def metrics_chart(
    run: RunView, metrics: Mapping[str, str], axis: Axis, width: float = WIDTH
) -> Figure | None:
    """Several metrics of one run in one chart, given as metric -> label."""
    return line_chart(_side_by_side(run, metrics), axis, "rounds", width)


def fairness_chart(run: RunView, width: float = WIDTH) -> Figure | None:
    """Client accuracy: the mean with one standard deviation, and the mean of the worst tenth."""
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
    curves: Sequence[Curve], axis: Axis, against: Against | Axis, width: float = WIDTH
) -> Figure | None:
    """Lines with bands; several lines are labelled at their right ends.

    The x axis is a cost of a run (from 0), or any other axis (from where the lines begin).
    """
    if not curves:
        return None
    height = max(_height(width), (len(curves) + 2) * _LINE / 72 + 0.6)
    figure, axes = canvas(width, height)
    largest = max(float(curve.x.max()) for curve in curves)
    across = against if isinstance(against, Axis) else _cost(against, largest)
    for curve in curves:
        _draw(axes, curve, across.factor, axis.factor, band=len(curves) <= MOST_BANDS)
    axes.set_xlabel(across.title)
    axes.set_ylabel(axis.title)
    _frame_x(axes, curves, against, across.factor, _ticks(width))
    if axis.whole:
        axes.yaxis.set_major_locator(whole_ticks(_ticks(width)))
        axes.yaxis.set_major_formatter(THOUSANDS)
    if axis.end:
        low, high = _at_least(axes.get_ylim(), _SPAN * axis.end)
        axes.set_ylim(max(low, -0.01 * axis.end), min(high, 1.01 * axis.end))
    else:
        values = np.concatenate([curve.mean for curve in curves])
        if values.min() > 0 and values.max() > _FAR * values.min():
            log_scale(axes, "y")
            axes.set_ylim(bottom=values.min() / 2)  # a band that reaches down to 0 would have no lower end
    if len(curves) > 1:
        _end_labels(axes, curves, axis.factor, _LINE / (72 * (height - 0.7)))
    return figure


def final_chart(
    runs: Sequence[RunView], metric: str, width: float = WIDTH, beside: str = ""
) -> Figure | None:
    """The final value of each label with its deviation over seeds, best at the top; rings are single seeds.

    A diamond shows the mean of a second metric, `beside`.
    """
    rows = comparison_rows(runs)
    axis = FINAL_AXES[metric]
    known = [(slot, row.label, stat) for slot, row in enumerate(rows) if (stat := row.stat(metric))]
    if not known:
        return None
    known.sort(key=lambda entry: entry[2].mean, reverse=axis.factor == 1)
    figure, axes = canvas(width, max(_height(width) - 0.2, 0.75 + 0.26 * len(known)))
    at_the_end = axes.get_yaxis_transform()  # x in axes fractions, y in data coordinates
    second = {row.label: stat for row in rows if beside and (stat := row.stat(beside))}
    for place, (slot, label, stat) in enumerate(known):
        colour = line_style(slot)["color"]
        mean, std = axis.factor * stat.mean, axis.factor * stat.std
        axes.plot([mean - std, mean + std], [place, place], color=colour, linewidth=2, solid_capstyle="round")
        values = [number(run.summary.get(metric)) for run in runs if run.label == label]
        rings = [axis.factor * value for value in values if value is not None]
        axes.plot(rings, [place] * len(rings), "o", color=colour, fillstyle="none", markersize=4, alpha=0.6)
        axes.plot([mean], [place], "o", color=colour, markersize=7)
        if label in second:
            axes.plot([axis.factor * second[label].mean], [place], "D", color=colour, markersize=5, alpha=0.7)
        axes.text(1.02, place, stat_text(metric, stat), transform=at_the_end, va="center", color=INK)
    axes.set_yticks(range(len(known)), [short(label) for _, label, _ in known])
    axes.tick_params(axis="y", labelcolor=INK, labelsize=10)
    axes.set_ylim(-0.6, len(known) - 0.4)
    if axis.end:
        low, high = _at_least(axes.get_xlim(), _SPAN * axis.end)
        axes.set_xlim(max(low, -0.01 * axis.end), min(high, 1.01 * axis.end))
    axes.set_xlabel(axis.title)
    return figure


def histogram_chart(histogram: Histogram, x_title: str, y_title: str, width: float = WIDTH) -> Figure:
    """One bar per bin; on a log scale if one bar would dwarf all others."""
    figure, axes = canvas(width, _height(width))
    heights, edges = histogram.heights, histogram.edges - 0.5  # so that a bar is centred on its number
    largest, *others = sorted(heights.tolist(), reverse=True)
    dwarfs = bool(others) and largest > _FAR * max(others[0], 1)
    bottom = 0.5 if dwarfs else 0.0
    draw_bars(axes, heights, edges, bottom=bottom)
    axes.grid(visible=False, axis="x")
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(bottom, 2 * largest if dwarfs else 1.08 * max(3, largest))
    axes.set_xlabel(x_title)
    axes.set_ylabel(y_title)
    axes.xaxis.set_major_locator(whole_ticks(_ticks(width)))
    if dwarfs:
        log_scale(axes, "y")
    else:
        axes.yaxis.set_major_locator(whole_ticks(_ticks(width)))
        axes.yaxis.set_major_formatter(THOUSANDS)
    return figure


def _at_least(limits: tuple[float, float], span: float) -> tuple[float, float]:
    """The limits, widened to a range of at least `span`."""
    more = max(0.0, span - (limits[1] - limits[0])) / 2
    return limits[0] - more, limits[1] + more


def _ticks(width: float) -> int:
    return 7 if width >= WIDTH else 5


def _height(width: float) -> float:
    return min(HEIGHT, 0.7 * width)  # small charts are a little taller in proportion


def _side_by_side(run: RunView, metrics: Mapping[str, str]) -> list[Curve]:
    return [
        curve._replace(label=label, slot=slot)
        for slot, (metric, label) in enumerate(metrics.items())
        for curve in metric_curves([run], metric)
    ]


def _draw(axes: Axes, curve: Curve, across: float, up: float, *, band: bool) -> None:
    style = line_style(curve.slot)
    x, mean, std = across * curve.x, up * curve.mean, up * curve.std
    if band and std.any():
        low, high = mean - std, mean + std
        axes.fill_between(x, low, high, color=style["color"], alpha=0.2, linewidth=0)
        if len(x) == 1:  # the band of a single point has no width; a vertical line shows the deviation
            axes.plot([x[0], x[0]], [low[0], high[0]], color=style["color"], linewidth=1.2)
    axes.plot(x, mean, linewidth=1.8, marker="o" if len(x) <= 15 else "", markersize=4, **style)


def _cost(against: Against, largest: float) -> Axis:
    if against == "rounds":
        return Axis("Rounds")
    if against == "bytes":
        scale, unit = byte_unit(largest)
        return Axis(f"Traffic, up and down ({unit})", 1 / scale)
    scale, unit = second_unit(largest)
    return Axis(f"{'Time' if against == 'seconds' else 'Simulated time'} ({unit})", 1 / scale)


def _frame_x(axes: Axes, curves: Sequence[Curve], against: Against | Axis, factor: float, ticks: int) -> None:
    ends = [factor * float(curve.x[-1]) for curve in curves]
    if isinstance(against, Axis):
        start = min(factor * float(curve.x[0]) for curve in curves)
        axes.set_xlim(start, start + (1.03 * (max(ends) - start) or 1))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=ticks, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter("{x:,g}" if max(ends) < 10 else THOUSANDS)
        return
    # If costs differ by at most a factor of ten, all lines can be seen on a linear scale.
    if against != "rounds" and min(curve.x[0] for curve in curves) > 0 and max(ends) > 10 * min(ends):
        log_scale(axes, "x")
        return
    axes.set_xlim(0, 1.03 * max(ends) or 1)
    if against == "rounds":
        axes.xaxis.set_major_locator(whole_ticks(ticks))
        axes.xaxis.set_major_formatter(THOUSANDS)


def _end_labels(axes: Axes, curves: Sequence[Curve], factor: float, gap: float) -> None:
    axes.get_ylim()  # finalises the limits, which the transform below relies on
    to_axes = axes.transScale + axes.transLimits
    ends = [float(to_axes.transform((1.0, factor * curve.mean[-1]))[1]) for curve in curves]
    for curve, place in zip(curves, spread_apart(ends, gap), strict=True):
        line = Line2D([1.02, 1.065], [place, place], linewidth=2.4, clip_on=False, **line_style(curve.slot))
        line.set_transform(axes.transAxes)
        axes.add_artist(line)
        axes.text(1.08, place, short(curve.label), transform=axes.transAxes, va="center", color=INK)
