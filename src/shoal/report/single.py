"""The report of one run."""

from __future__ import annotations

from collections import Counter

import numpy as np

from shoal.report.blocks import (
    Cell,
    Sketch,
    Tile,
    badge,
    document,
    folded,
    gallery,
    heading,
    note,
    table,
    tiles,
    toml,
)
from shoal.report.charts import bar_chart, fairness_chart, metric_chart, metrics_chart
from shoal.report.facts import facts, population, progress
from shoal.report.runs import RunView, flatten, number
from shoal.report.series import Against, last, own_metrics, participation, rejections, total, track_of
from shoal.report.table import NOTHING, human_bytes, human_seconds

_MOST_ROWS = 20  # of a table, and of small charts


def single_page(run: RunView, title: str) -> str:
    """How well it went, what it cost, whom it served, and what exactly was run."""
    state = badge("finished", "good") if run.finished else badge(progress(run), "warn")
    body = [
        tiles(_tiles(run)),
        *_learning(run),
        *_clients(run),
        *_own(run),
        *_rejected(run),
        *_what_was_run(run),
    ]
    return document(title, "Run report", facts(run), state, body)


def _tiles(run: RunView) -> list[Tile]:
    rounds = max(len(run.rounds), 1)
    costs = []
    for cost, name in (("bytes_up", "Sent up"), ("bytes_down", "Sent down")):
        spent = total(run, cost)
        costs.append(
            Tile(name, human_bytes(spent), "" if spent is None else f"{human_bytes(spent / rounds)} a round")
        )
    seconds, virtual = total(run, "seconds"), total(run, "virtual_seconds")
    more = f"simulated: {human_seconds(virtual)}" if virtual else ""
    if not more and seconds:
        more = f"{human_seconds(seconds / rounds)} a round"
    return [*_quality(run), *costs, Tile("Time", human_seconds(seconds), more)]


def _quality(run: RunView) -> list[Tile]:
    first = "Final" if run.finished else "Latest"
    mse, accuracy = _known(run, "final_mse", "mse"), _known(run, "final_accuracy", "accuracy")
    if mse is not None and accuracy is None:
        best = min(((value, r) for r, (_, value) in track_of(run, "mse").items()), default=None)
        more = f"lowest {best[0]:.4g} at round {best[1]}" if best else ""
        return [Tile(f"{first} MSE", f"{mse:.4g}", more)]
    track = [(value, -r) for r, (_, value) in track_of(run, "accuracy").items()]
    most, at = max(track, default=(None, 0))
    told = number(run.summary.get("max_accuracy"))
    highest = told if told is not None else most
    where = f" at round {-at}" if most is not None and most == highest else ""
    mean = _known(run, "mean_client_accuracy", "mean_client_accuracy")
    worst = _known(run, "worst_client_accuracy", "worst_client_accuracy")
    spread = last(run, "client_accuracy_std")
    return [
        Tile(
            f"{first} accuracy",
            _percent(accuracy),
            "" if highest is None else f"max {_percent(highest)}{where}",
        ),
        Tile(
            "Mean client", _percent(mean), "" if spread is None else f"± {100 * spread:.1f} between clients"
        ),
        Tile("Worst tenth of clients", _percent(worst), _gap(mean, worst)),
    ]


def _learning(run: RunView) -> list[str]:
    metric = "mse" if last(run, "accuracy") is None and last(run, "mse") is not None else "accuracy"
    name = "MSE" if metric == "mse" else "Accuracy"
    time: Against = "virtual_seconds" if track_of(run, metric, "virtual_seconds") else "seconds"
    losses = {"loss": "Test", "train_loss": "Training"}
    shown = gallery(
        [
            Sketch(lambda width: metric_chart([run], metric, "rounds", width), f"{name} over rounds"),
            Sketch(lambda width: metrics_chart(run, losses, "Loss", width), "Loss over rounds"),
            Sketch(lambda width: metric_chart([run], metric, "bytes", width), f"{name} against traffic"),
            Sketch(lambda width: metric_chart([run], metric, time, width), f"{name} against time"),
        ]
    )
    return [heading("Learning"), shown or note("Nothing has been measured yet.")]


def _clients(run: RunView) -> list[str]:
    counts = participation(run, population(run))
    uneven = counts.size > 1 and counts.min() != counts.max()
    axes = ("Clients, most often first", "Rounds taken part in")
    scores = {"balanced_accuracy": "Balanced accuracy", "f1": "F1", "auc": "Area under ROC"}
    shown = gallery(
        [
            Sketch(
                lambda width: fairness_chart(run, width),
                "Accuracy among clients",
                "Band: one standard deviation between clients.",
            ),
            Sketch(
                lambda width: bar_chart(counts, *axes, width) if uneven else None,
                "Participation",
                f"{np.count_nonzero(counts):,} of {counts.size:,} clients took part at least once.",
            ),
            Sketch(
                lambda width: metrics_chart(run, scores, "Score", width),
                "Other scores",
                "On the global test set.",
            ),
        ]
    )
    return [heading("Clients and scores"), shown] if shown else []


def _own(run: RunView) -> list[str]:
    names = own_metrics([run])[:_MOST_ROWS]
    if not names:
        return []
    return [heading("The method's own metrics"), gallery([_own_sketch(run, name) for name in names])]


def _own_sketch(run: RunView, name: str) -> Sketch:
    title = name.replace("_", " ").capitalize()
    return Sketch(lambda width: metric_chart([run], name, "rounds", width), title)


def _rejected(run: RunView) -> list[str]:
    found = rejections(run)
    if not found:
        return []
    by_reason = Counter(entry.reason for entry in found)
    rows = []
    for reason, count in by_reason.most_common(_MOST_ROWS):
        entries = [entry for entry in found if entry.reason == reason]
        clients = Counter(entry.client for entry in entries)
        often = ", ".join(f"{client} ({times}×)" for client, times in clients.most_common(5))
        where = (
            f"{entries[0].round} to {entries[-1].round}"
            if entries[0].round < entries[-1].round
            else str(entries[0].round)
        )
        rows.append(
            [
                Cell(reason, "text long"),
                Cell(f"{count:,}"),
                Cell(f"{len(clients):,}"),
                Cell(often, "text long"),
                Cell(where),
            ]
        )
    per_round = np.bincount([entry.round for entry in found], minlength=int(run.rounds[-1]["round"]) + 1)[1:]
    head = [
        Cell("Reason", "text"),
        Cell("Replies"),
        Cell("Clients"),
        Cell("Most often", "text"),
        Cell("Rounds"),
    ]
    rest = len(by_reason) - len(rows)
    return [
        heading("Rejected replies"),
        note(f"{len(found):,} replies were not accepted; they left no trace in the model."),
        table(head, rows),
        note(f"{rest} rarer reasons are not shown.") if rest else "",
        gallery(
            [Sketch(lambda width: bar_chart(per_round, "Rounds", "Replies", width), "Rejected in each round")]
        ),
    ]


def _what_was_run(run: RunView) -> list[str]:
    sha = run.summary.get("weights_sha256")
    rows = [[Cell("SHA-256 of the weights", "text"), Cell(str(sha), "text long")]] if sha else []
    for name in ("memory_sha256", "torch", "processor"):
        if run.summary.get(name):
            rows.append([Cell(name, "text"), Cell(str(run.summary[name]), "text long")])
    return [
        heading("What was run"),
        table([Cell("What", "text"), Cell("Value", "text")], rows) if rows else "",
        folded("The resolved spec", toml(flatten(run.spec))),
    ]


def _known(run: RunView, summary: str, metric: str) -> float | None:
    told = number(run.summary.get(summary))
    return told if told is not None else last(run, metric)


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.2f} %"


def _gap(mean: float | None, worst: float | None) -> str:
    return "" if mean is None or worst is None else f"{100 * (mean - worst):.1f} below the mean"
