"""Comparisons from Python, and loading of results from disk."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.errors import SpecError
from shoal.core.method import Method, Recipe
from shoal.report.paper_table import difference_text, main_metric, paired, paper_table
from shoal.report.runs import RunView, read_runs, run_directories
from shoal.report.table import COLUMNS, Row, comparison_rows, shown_columns, stat_text
from shoal.runs.arguments import Given, as_tables
from shoal.runs.load import load_run
from shoal.runs.progress_line import ProgressLine, progress_line
from shoal.runs.result import Result
from shoal.runs.runner import run
from shoal.study.compare import PlannedRun, plan_all, report, run_missing

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Comparison:
    """Several runs; those with the same label are seeds of one experiment."""

    views: Sequence[RunView]
    directory: Path | None = None

    @property
    def rows(self) -> list[Row]:
        """Mean and deviation over seeds of every label."""
        return comparison_rows(self.views)

    def frame(self) -> pandas.DataFrame:
        """A pandas data frame: one row per run, with label, seed and the values of its summary."""
        import pandas

        plain = (str, int, float, bool, type(None))
        rows = [
            {"label": view.label, "seed": view.spec.get("seed")}
            | {name: value for name, value in view.summary.items() if isinstance(value, plain)}
            for view in self.views
        ]
        return pandas.DataFrame(rows)

    def table(self, form: str = "markdown") -> str:
        """The table for a paper, as "markdown", "latex" or "csv"."""
        return paper_table(self.views, form)

    def plot(self, metric: str = "accuracy") -> Figure:
        """A chart of a metric over rounds, with one line per label."""
        from shoal.report.charts import metric_chart

        chart = metric_chart(self.views, metric)
        if chart is None:
            raise SpecError(f"no run has measured {metric!r}")
        return chart

    def __repr__(self) -> str:
        rows = self.rows
        metric = main_metric(rows)
        told = ", ".join(f"{row.label} {stat_text(metric, row.stat(metric))}" for row in rows[:6])
        return f"<Comparison of {len(self.views)} runs, {COLUMNS[metric].title}: {told}>"

    def _repr_html_(self) -> str:
        rows = self.rows
        columns, metric = shown_columns(rows), main_metric(rows)
        apart = paired(self.views, metric)
        head = ["", *(column.title for column in columns.values()), f"Difference to {rows[0].label}"]
        lines = [
            [
                row.label,
                *(stat_text(name, row.stat(name)) for name in columns),
                difference_text(metric, apart.get(row.label)),
            ]
            for row in rows
        ]
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(c)}</td>' for c in line)}</tr>" for line in lines)
        return f"<table><tr>{''.join(f'<th>{html.escape(c)}</th>' for c in head)}</tr>{body}</table>"


def compare(
    methods: Sequence[str | Method | Recipe],
    spec: Given = None,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    grid: Mapping[str, Sequence[Any]] | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
    **tables: Any,
) -> Comparison:
    """Run several methods with one spec and several seeds.

    A method is a name, optionally with fields (`fedprox:mu=0.1`), or an object. `grid` maps dotted names of
    spec fields to lists of values; every combination is run. With `out`, runs that are in the folder already
    are kept. Keywords are tables of the spec, as in `shoal.run`.
    """
    folder = None if out is None else Path(out)
    cells = plan_all(methods, as_tables(spec, tables), seeds, grid or {}, folder or Path("."))
    line = progress_line(f"{len(cells)} runs", sum(cell.spec.rounds for cell in cells), progress)
    if folder is None:
        return Comparison([_in_memory(cell, place, cells, line) for place, cell in enumerate(cells)])
    run_missing(cells, lambda cell: _watcher(line, cells.index(cell), cells))
    report(cells, folder, " against ".join(dict.fromkeys(cell.label for cell in cells)))
    return load_comparison([cell.directory for cell in cells], folder, [cell.label for cell in cells])


def _in_memory(
    cell: PlannedRun, place: int, cells: Sequence[PlannedRun], line: ProgressLine | None
) -> RunView:
    return run(cell.spec, watcher=_watcher(line, place, cells), progress=False).view(cell.label)


def _watcher(line: ProgressLine | None, place: int, cells: Sequence[PlannedRun]) -> Any:
    """A watcher that tells the line how many rounds of all runs are done."""
    before = sum(cell.spec.rounds for cell in cells[:place])
    return lambda record: None if line is None else line({**record, "round": before + record["round"]})


def load_comparison(
    directories: Sequence[Path], folder: Path | None, labels: Sequence[str] | None = None
) -> Comparison:
    """Load runs from disk as a comparison."""
    views = read_runs(directories)
    if labels is not None:
        views = [view._replace(label=label) for view, label in zip(views, labels, strict=True)]
    return Comparison(views, folder)


def load(path: str | Path) -> Result | Comparison:
    """Load the result of a finished run from its directory, or all runs in a folder as a comparison."""
    folder = Path(path)
    if (folder / "spec.toml").exists():
        return load_run(folder)
    return load_comparison(run_directories([folder]), folder)
