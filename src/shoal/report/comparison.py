"""The comparison of several runs; runs of one label are its seeds."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.report.blocks import Cell, Sketch, badge, document, folded, gallery, heading, note, table, toml
from shoal.report.charts import MOST_BANDS, final_chart, metric_chart
from shoal.report.facts import progress, shared_facts
from shoal.report.runs import RunView, flatten, number, settings_of, varying
from shoal.report.series import Against, is_regression, total
from shoal.report.table import (
    COLUMNS,
    NOTHING,
    Stat,
    comparison_rows,
    human_bytes,
    human_seconds,
    marks,
    shown_columns,
    stat_text,
)


def comparison_page(runs: Sequence[RunView], title: str) -> str:
    """Who is best and by how much, how they got there, at what cost, and in what they differ."""
    open_runs = sum(not run.finished for run in runs)
    state = badge(f"{open_runs} unfinished", "warn") if open_runs else ""
    labels = list(dict.fromkeys(run.label for run in runs))
    kind = f"Comparison of {len(runs)} runs"
    body = [*_results(runs, open_runs), *_curves(runs), *_settings(runs, labels), *_every_run(runs, labels)]
    return document(title, kind, shared_facts(runs), state, body)


def _results(runs: Sequence[RunView], open_runs: int) -> list[str]:
    rows = comparison_rows(runs)
    columns = shown_columns(rows)
    marked = {name: marks(rows, name) for name in columns}
    lines = []
    for place, row in enumerate(rows):
        seeds = str(row.seeds) if row.finished == row.seeds else f"{row.finished} of {row.seeds}"
        cells = [Cell(stat_text(name, row.stat(name)), marked[name][place]) for name in columns]
        lines.append([Cell(row.label, "text name", place), Cell(seeds), *cells])
    head = [Cell("Label", "text"), Cell("Seeds"), *(Cell(column.title) for column in columns.values())]
    over = "Mean ± sample standard deviation over seeds." if any(row.seeds > 1 for row in rows) else ""
    legend = (
        '<b class="key">Bold</b> is the best mean of a column; '
        '<span class="key">shaded</span> lies within one standard deviation of it. '
    )
    remark = f'<p class="note">{legend if any(map(any, marked.values())) else ""}{over}</p>'
    unfinished = note("Unfinished runs are in the curves, not in this table.") if open_runs else ""
    return [heading("Results"), table(head, lines), remark, unfinished]


def _curves(runs: Sequence[RunView]) -> list[str]:
    regression = is_regression(runs)
    metric, name, final = ("mse", "MSE", "MSE") if regression else ("accuracy", "Accuracy", "accuracy")
    labels = {run.label for run in runs}
    many, repeated = len(labels) > MOST_BANDS, len(labels) < len(runs)

    def over(metric: str, title: str, against: Against = "rounds", remark: str = "") -> Sketch:
        return Sketch(lambda width: metric_chart(runs, metric, against, width), title, remark)

    band = "Lines are means over seeds" + ("." if many else ", bands one standard deviation.")
    learning = [
        over(metric, f"{name} over rounds", remark=band if repeated else ""),
        Sketch(
            lambda width: final_chart(runs, f"final_{metric}", width),
            f"Final {final}",
            "Dots are means, rings single seeds." if repeated else "",
        ),
    ]
    costs = [
        over(metric, f"{name} against traffic", "bytes"),
        over(metric, f"{name} against time", "seconds"),
        over(metric, f"{name} against simulated time", "virtual_seconds"),
    ]
    clients = [
        over("mean_client_accuracy", "Mean client accuracy"),
        over("worst_client_accuracy", "Worst tenth of clients"),
    ]
    losses = [over("loss", "Test loss"), over("clients.train_loss", "Training loss")]
    sections = {"Learning": learning, "Cost": costs, "Clients": clients, "Losses": losses}
    drawn = {title: gallery(sketches, roomy=many) for title, sketches in sections.items()}
    shown = [part for title, cards in drawn.items() if cards for part in (heading(title), cards)]
    return shown or [heading("Learning"), note("Nothing has been measured yet.")]


def _settings(runs: Sequence[RunView], labels: Sequence[str]) -> list[str]:
    flat = [flatten(run.spec) for run in runs]
    differing = set(varying(flat))
    common = {key: value for key, value in flat[0].items() if key not in differing}
    own, mixed = [], []
    for label in labels:
        group = [run for run in runs if run.label == label]
        if unlike := varying([settings_of(run) for run in group]):
            mixed.append(note(f"The runs of {label} differ in more than the seed: {', '.join(unlike)}."))
        mine = {key: value for key, value in flatten(group[0].spec).items() if key in differing - {"seed"}}
        own.append(f"# {label}\n{toml(mine)}" if mine else f"# {label}: nothing of its own")
    return [
        heading("Settings"),
        *mixed,
        folded("What all runs share", toml(common)),
        folded("What is particular to each label", "\n\n\n".join(own)) if len(labels) > 1 else "",
    ]


def _every_run(runs: Sequence[RunView], labels: Sequence[str]) -> list[str]:
    final = "final_mse" if is_regression(runs) else "final_accuracy"
    head = ("Seed", "State", COLUMNS[final].title, "Sent up", "Sent down", "Time")
    lines = []
    for run in runs:
        value = number(run.summary.get(final))
        lines.append(
            [
                Cell(run.label, "text name", labels.index(run.label)),
                Cell(str(run.spec.get("seed", NOTHING))),
                Cell(f"{len(run.rounds):,} rounds" if run.finished else progress(run)),
                Cell(stat_text(final, None if value is None else Stat(value, 0.0))),
                Cell(human_bytes(total(run, "bytes_up"))),
                Cell(human_bytes(total(run, "bytes_down"))),
                Cell(human_seconds(total(run, "seconds"))),
                Cell(str(run.summary.get("weights_sha256", NOTHING))[:12], "text"),
            ]
        )
    cells = [Cell("Label", "text"), *map(Cell, head), Cell("Weights (SHA-256)", "text")]
    return [heading("Every run"), table(cells, lines)]
