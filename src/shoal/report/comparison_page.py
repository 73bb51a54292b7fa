"""The page that compares several runs; runs with the same label are seeds of one experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.report.charts import MOST_BANDS, final_chart, metric_chart
from shoal.report.page_parts import Badge, Gallery, PageTable, Sketch, TableCell, document, gallery, toml
from shoal.report.paper_table import PairedDifference, difference_text, main_metric, paired
from shoal.report.run_description import progress, sample_text, shared_facts
from shoal.report.runs import RunView, flatten, number, settings_of, varying
from shoal.report.series import Against, is_regression, total
from shoal.report.table import (
    COLUMNS,
    NOTHING,
    Mark,
    Row,
    Stat,
    comparison_rows,
    human_bytes,
    human_seconds,
    marks,
    shown_columns,
    stat_text,
)

_LEFT_OUT = ("mean_accuracy", "total_seconds")  # left out of the table, which has to fit on a page


def comparison_page(runs: Sequence[RunView], title: str) -> str:
    """Render the comparison: which label is best and by how much, learning curves, costs and settings."""
    unfinished = sum(not run.finished for run in runs)
    labels = list(dict.fromkeys(run.label for run in runs))
    rows = comparison_rows(runs)
    marked = {name: marks(rows, name) for name in shown_columns(rows) if name not in _LEFT_OUT}
    shared, particular = _settings(runs, labels)
    return document(
        "comparison.html",
        title,
        f"Comparison of {len(runs)} runs",
        shared_facts(runs),
        Badge(f"{unfinished} unfinished", "warn") if unfinished else None,
        results=_results(rows, marked, paired(runs, main_metric(rows))),
        marked=any(map(any, marked.values())),
        repeated=any(row.seeds > 1 for row in rows),
        unfinished=unfinished,
        charts=_charts(runs),
        mixed=_mixed(runs, labels),
        shared=shared,
        particular=particular,
        every_run=_every_run(runs, labels),
    )


def _results(
    rows: Sequence[Row], marked: Mapping[str, Sequence[Mark]], apart: Mapping[str, PairedDifference]
) -> PageTable:
    lines, main = [], main_metric(rows)
    for place, row in enumerate(rows):
        seeds = str(row.seeds) if row.finished == row.seeds else f"{row.finished} of {row.seeds}"
        cells = [TableCell(stat_text(name, row.stat(name)), marked[name][place]) for name in marked]
        if apart:
            cells[1:1] = [TableCell(difference_text(main, apart.get(row.label)))]
        lines.append([TableCell(row.label, "text name", place), TableCell(seeds), *cells])
    titles = [COLUMNS[name].title for name in marked]
    if apart:
        titles[1:1] = [f"Difference to {rows[0].label}"]
    return PageTable([TableCell("Label", "text"), TableCell("Seeds"), *map(TableCell, titles)], lines)


def _charts(runs: Sequence[RunView]) -> dict[str, Gallery]:
    """Section title -> its charts, for sections with charts."""
    many = len({run.label for run in runs}) > MOST_BANDS
    drawn = {title: gallery(sketches, roomy=many) for title, sketches in comparison_sketches(runs).items()}
    return {title: cards for title, cards in drawn.items() if cards}


def comparison_sketches(runs: Sequence[RunView]) -> dict[str, list[Sketch]]:
    """Section title -> its charts, some of which may have nothing to show."""
    regression = is_regression(runs)
    metric, name, final = ("mse", "MSE", "MSE") if regression else ("accuracy", "Accuracy", "accuracy")
    labels = {run.label for run in runs}
    many, repeated = len(labels) > MOST_BANDS, len(labels) < len(runs)

    def over(metric: str, title: str, against: Against = "rounds", remark: str = "") -> Sketch:
        return Sketch(lambda width: metric_chart(runs, metric, against, width), title, remark)

    rings = "Dots are means, rings single seeds." if repeated else ""
    band = "Lines are means over seeds" + ("." if many else ", bands one standard deviation.")
    learning = [
        over(metric, f"{name} over rounds", remark=band if repeated else ""),
        Sketch(
            lambda width: final_chart(runs, f"final_{metric}", width),
            f"Final {final}",
            rings,
        ),
    ]
    costs = [
        over(metric, f"{name} against traffic", "bytes"),
        over(metric, f"{name} against time", "seconds"),
        over(metric, f"{name} against simulated time", "virtual_seconds"),
    ]
    tuned = any("finetuned_mean_client_accuracy" in run.summary for run in runs)
    samples = {sample_text(run) for run in runs}
    sample = samples.pop() if len(samples) == 1 else ""
    clients = [
        over("mean_client_accuracy", "Mean client accuracy", remark=sample),
        over("worst_client_accuracy", "Worst tenth of clients", remark=sample),
        over("newcomers.mean_client_accuracy", "Mean newcomer accuracy", remark=sample),
        Sketch(
            lambda width: final_chart(runs, "mean_client_accuracy", width, "finetuned_mean_client_accuracy"),
            "Final mean client accuracy",
            " ".join(filter(None, (rings, "Diamonds: after fine-tuning." if tuned else ""))),
        ),
    ]
    losses = [over("loss", "Test loss"), over("clients.train_loss", "Training loss")]
    return {"Learning": learning, "Cost": costs, "Clients": clients, "Losses": losses}


def _mixed(runs: Sequence[RunView], labels: Sequence[str]) -> dict[str, list[str]]:
    """Label -> settings besides the seed in which its runs differ, for labels with such settings."""
    found = {label: varying([settings_of(run) for run in runs if run.label == label]) for label in labels}
    return {label: keys for label, keys in found.items() if keys}


def _settings(runs: Sequence[RunView], labels: Sequence[str]) -> tuple[str, str]:
    """As TOML: the settings that all runs share, and those of each label (empty for a single label)."""
    flat = [flatten(run.spec) for run in runs]
    differing = set(varying(flat))
    shared = toml({key: value for key, value in flat[0].items() if key not in differing})
    own = []
    for label in labels:
        first = next(settings for run, settings in zip(runs, flat, strict=True) if run.label == label)
        mine = {key: value for key, value in first.items() if key in differing - {"seed"}}
        own.append(f"# {label}\n{toml(mine)}" if mine else f"# {label}: only shared settings")
    return shared, "\n\n\n".join(own) if len(labels) > 1 else ""


def _every_run(runs: Sequence[RunView], labels: Sequence[str]) -> PageTable:
    final = "final_mse" if is_regression(runs) else "final_accuracy"
    head = ("Seed", "State", COLUMNS[final].title, "Sent up", "Sent down", "Time")
    lines = []
    for run in runs:
        value = number(run.summary.get(final))
        lines.append(
            [
                TableCell(run.label, "text name", labels.index(run.label)),
                TableCell(str(run.spec.get("seed", NOTHING))),
                TableCell(f"{len(run.rounds):,} rounds" if run.finished else progress(run)),
                TableCell(stat_text(final, None if value is None else Stat(value, 0.0))),
                TableCell(human_bytes(total(run, "bytes_up"))),
                TableCell(human_bytes(total(run, "bytes_down"))),
                TableCell(human_seconds(total(run, "seconds"))),
                TableCell(str(run.summary.get("weights_sha256", NOTHING))[:12], "text"),
            ]
        )
    cells = [TableCell("Label", "text"), *map(TableCell, head), TableCell("Weights (SHA-256)", "text")]
    return PageTable(cells, lines)
