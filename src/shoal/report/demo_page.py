"""The page and the picture of the demo: five systems, each compared with FedAvg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib
from matplotlib.figure import Figure

from shoal.report.canvas import COLOURS, INK, MUTED, STYLE, WIDTH, whole_ticks
from shoal.report.charts import metric_chart
from shoal.report.page_parts import Card, PageTable, TableCell, Tile, card, document
from shoal.report.runs import RunView
from shoal.report.series import METRIC_AXES, Against, metric_curves
from shoal.report.table import COLUMNS, byte_unit, comparison_rows, human_seconds, second_unit, stat_text

NAMES = {
    "fedavg": "FedAvg",
    "fedqp": "FedQP",
    "fsi": "FSI",
    "genefl": "GENE-FL",
    "dsvd": "DSVD-FL",
    "situa_cq": "SITUA-CQ",
}


class DemoScene(NamedTuple):
    """One way in which clients differ, and the system designed for it."""

    unlike: str
    title: str
    story: str
    system: str
    runs: Sequence[RunView]
    metric: str
    against: Against
    columns: Sequence[str]

    @property
    def judged_by(self) -> str:
        """The table column with the final value of the metric."""
        return self.metric if self.metric in COLUMNS else "final_accuracy"


class SceneSection(NamedTuple):
    """A scene in the form that the template takes."""

    unlike: str
    title: str
    story: str
    results: PageTable
    chart: Card | None


def demo_page(scenes: Sequence[DemoScene]) -> str:
    """Render one self-contained HTML page."""
    runs = [run for scene in scenes for run in scene.runs]
    seconds = sum(float(run.summary.get("total_seconds") or 0) for run in runs)
    seeds = sorted({str(run.spec.get("seed")) for run in runs})
    facts = {
        "Systems": ", ".join(NAMES[scene.system] for scene in scenes),
        "Runs": str(len(runs)),
        "Seeds": ", ".join(seeds),
        "Total time of all runs": human_seconds(seconds),
    }
    return document(
        "demo.html",
        "Five ways in which clients differ",
        "Demo",
        facts,
        None,
        tiles=[_tile(scene) for scene in scenes],
        scenes=[_section(scene) for scene in scenes],
    )


_COST = {"rounds": ("", ""), "bytes": ("bytes_up", "upload"), "virtual_seconds": ("virtual_seconds", "time")}


def _tile(scene: DemoScene) -> Tile:
    """The system's result next to FedAvg's, with its relative cost if the scene is about costs."""
    plain, ours = comparison_rows(scene.runs)
    result, other = ours.stat(scene.judged_by), plain.stat(scene.judged_by)
    cost, of_what = _COST.get(scene.against, ("", ""))
    took, usual = (row.stat(cost) if cost else None for row in (ours, plain))
    less = f", {100 * took.mean / usual.mean:.0f} % of its {of_what}" if took and usual and usual.mean else ""
    return Tile(
        f"{scene.unlike}: {NAMES[scene.system]}",
        f"{100 * result.mean:.1f} %" if result else "",
        f"FedAvg {100 * other.mean:.1f} %{less}" if other else "",
    )


def _section(scene: DemoScene) -> SceneSection:
    rows = comparison_rows(_named(scene.runs))
    columns = [name for name in scene.columns if any(row.stat(name) for row in rows)]
    head = [TableCell("Method", "text"), *(TableCell(COLUMNS[name].title) for name in columns)]
    lines = [
        [
            TableCell(row.label, "text name", place),
            *(TableCell(stat_text(name, row.stat(name))) for name in columns),
        ]
        for place, row in enumerate(rows)
    ]
    figure = metric_chart(_named(scene.runs), scene.metric, scene.against, WIDTH)
    chart = None if figure is None else card(figure, METRIC_AXES[scene.metric].title)
    return SceneSection(scene.unlike, scene.title, scene.story, PageTable(head, lines), chart)


def _named(runs: Sequence[RunView]) -> list[RunView]:
    return [run._replace(label=NAMES.get(run.label, run.label)) for run in runs]


def demo_picture(scenes: Sequence[DemoScene]) -> Figure:
    """All scenes side by side: FedAvg in grey, the system in colour."""
    with matplotlib.rc_context({**STYLE, "figure.facecolor": "white", "savefig.facecolor": "white"}):
        figure = Figure(figsize=(11, 5.6), layout="constrained", dpi=130)
        axes = figure.subplots(2, 3).ravel()
        for place, (scene, panel) in enumerate(zip(scenes, axes)):
            x_title, factor = _across(scene)
            for curve in metric_curves(scene.runs, scene.metric, scene.against):
                ours = curve.label == scene.system
                colour = COLOURS[place] if ours else "#9aa3ad"
                x, y, std = factor * curve.x, 100 * curve.mean, 100 * curve.std
                panel.fill_between(x, y - std, y + std, color=colour, alpha=0.18, linewidth=0)
                panel.plot(x, y, color=colour, linewidth=2.4 if ours else 1.6)
            panel.set_title(f"{scene.unlike}\n", fontsize=10, color=MUTED)
            panel.text(
                0, 1.03, NAMES[scene.system], transform=panel.transAxes, fontsize=13, color=COLOURS[place]
            )
            panel.set_xlabel(x_title)
            panel.xaxis.set_major_locator(whole_ticks(6))
            if scene.metric != "accuracy":
                panel.set_ylabel(METRIC_AXES[scene.metric].title)
            panel.set_ylim(0, 100)
            panel.set_xlim(left=0)
        axes[0].set_ylabel("Test accuracy (%)")
        axes[3].set_ylabel("Test accuracy (%)")
        _legend(axes[5])
    return figure


def _across(scene: DemoScene) -> tuple[str, float]:
    curves = metric_curves(scene.runs, scene.metric, scene.against)
    largest = max((float(curve.x.max()) for curve in curves), default=1.0)
    if scene.against == "bytes":
        scale, unit = byte_unit(largest)
        return f"Traffic ({unit})", 1 / scale
    if scene.against == "rounds":
        return "Rounds", 1.0
    scale, unit = second_unit(largest)
    return f"Simulated time ({unit})", 1 / scale


def _legend(panel: matplotlib.axes.Axes) -> None:
    panel.axis("off")
    lines = (
        ("colour: the system", COLOURS[0]),
        ("grey: FedAvg", "#7d8791"),
        ("bands: one standard deviation", INK),
        ("over three seeds", INK),
    )
    for place, (text, colour) in enumerate(lines):
        panel.text(0.05, 0.75 - 0.13 * place, text, transform=panel.transAxes, color=colour, fontsize=11)
