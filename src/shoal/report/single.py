"""The report of one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
from shoal.report.series import (
    Against,
    Quantity,
    Rejection,
    is_regression,
    last,
    own_metrics,
    participation,
    rejections,
    total,
    track_of,
)
from shoal.report.table import COLUMNS, NOTHING, human_bytes, human_seconds

_MOST = 20  # rows of a table, and charts of a method's own metrics
_TOLD = frozenset(
    {"method", "dataset", "model", "seed", "rounds", "rejected", *COLUMNS}
)  # of a summary, elsewhere on the page

_NAMES = {
    "weights_sha256": "SHA-256 of the weights",
    "memory_sha256": "SHA-256 of the clients' memories",
    "auc": "Area under the ROC curve",
    "f1": "F1 score",
    "client_accuracy_std": "Deviation between clients",
}


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
        share = "" if spent is None else f"{human_bytes(spent / rounds)} a round"
        costs.append(Tile(name, human_bytes(spent), share))
    seconds, virtual = total(run, "seconds"), total(run, "virtual_seconds")
    more = f"simulated: {human_seconds(virtual)}" if virtual else ""
    if not more and seconds:
        more = f"{human_seconds(seconds / rounds)} a round"
    return [*_quality(run), *costs, Tile("Time", human_seconds(seconds), more)]


def _quality(run: RunView) -> list[Tile]:
    first = "Final" if run.finished else "Latest"
    if is_regression([run]):
        mse = _known(run, "final_mse", "mse")
        best = min(((value, r) for r, (_, value) in track_of(run, "mse").items()), default=None)
        more = f"lowest {best[0]:.4g} at round {best[1]}" if best else ""
        return [Tile(f"{first} MSE", NOTHING if mse is None else f"{mse:.4g}", more)]
    accuracy = _known(run, "final_accuracy", "accuracy")
    track = [(value, -r) for r, (_, value) in track_of(run, "accuracy").items()]
    most, at = max(track, default=(None, 0))
    told = number(run.summary.get("max_accuracy"))
    highest = told if told is not None else most
    where = f" at round {-at}" if most is not None and most == highest else ""
    mean = _known(run, "mean_client_accuracy", "mean_client_accuracy")
    worst = _known(run, "worst_client_accuracy", "worst_client_accuracy")
    spread = last(run, "client_accuracy_std")
    most_told = "" if highest is None else f"max {_percent(highest)}{where}"
    between = "" if spread is None else f"± {100 * spread:.1f} between clients"
    return [
        Tile(f"{first} accuracy", _percent(accuracy), most_told),
        Tile("Mean client", _percent(mean), between),
        Tile("Worst tenth of clients", _percent(worst), _gap(mean, worst)),
    ]


def _learning(run: RunView) -> list[str]:
    metric, name = ("mse", "MSE") if is_regression([run]) else ("accuracy", "Accuracy")
    time: Against = "virtual_seconds" if track_of(run, metric, "virtual_seconds") else "seconds"
    losses = {"loss": "Test", "clients.train_loss": "Training"}
    shown = gallery(
        [
            Sketch(lambda width: metric_chart([run], metric, "rounds", width), f"{name} over rounds"),
            Sketch(lambda width: metrics_chart(run, losses, Quantity("Loss"), width), "Loss over rounds"),
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
                lambda width: metrics_chart(run, scores, Quantity("Score", end=1), width),
                "Other scores",
                "On the global test set.",
            ),
        ]
    )
    return [heading("Clients and scores"), shown] if shown else []


def _own(run: RunView) -> list[str]:
    names = own_metrics([run])[:_MOST]
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
    reasons = Counter(entry.reason for entry in found).most_common()
    rows = [_reason([entry for entry in found if entry.reason == reason]) for reason, _ in reasons[:_MOST]]
    head = [Cell("Reason", "text"), *map(Cell, ("Replies", "Clients", "Rounds")), Cell("Most often", "text")]
    rest = len(reasons) - len(rows)
    per_round = np.bincount([entry.round for entry in found], minlength=int(run.rounds[-1]["round"]) + 1)[1:]
    bars = Sketch(lambda width: bar_chart(per_round, "Rounds", "Replies", width), "Rejected in each round")
    return [
        heading("Rejected replies"),
        note(f"{len(found):,} replies were not accepted; they left no trace in the model."),
        table(head, rows),
        note(f"{rest} rarer reasons are not shown.") if rest else "",
        gallery([bars]),
    ]


def _reason(entries: Sequence[Rejection]) -> list[Cell]:
    clients = Counter(entry.client for entry in entries)
    first, final = entries[0].round, entries[-1].round
    often = ", ".join(f"{client} ({times}×)" for client, times in clients.most_common(5))
    return [
        Cell(entries[0].reason, "text long"),
        Cell(f"{len(entries):,}"),
        Cell(f"{len(clients):,}"),
        Cell(f"{first} to {final}" if first < final else f"{first}"),
        Cell(f"client {often}", "text long"),
    ]


def _what_was_run(run: RunView) -> list[str]:
    rest = {k: v for k, v in run.summary.items() if k not in _TOLD and isinstance(v, str | int | float)}
    order = sorted(rest, key=lambda name: (not name.endswith("sha256"), name))
    rows = [
        [Cell(_NAMES.get(k, k.replace("_", " ").capitalize()), "text"), Cell(_plain(rest[k]), "text long")]
        for k in order
    ]
    return [
        heading("Summary and spec"),
        table([Cell("What", "text"), Cell("Value", "text")], rows) if rows else "",
        folded("The resolved spec", toml(flatten(run.spec))),
    ]


def _plain(value: str | int | float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _known(run: RunView, summary: str, metric: str) -> float | None:
    told = number(run.summary.get(summary))
    return told if told is not None else last(run, metric)


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.2f} %"


def _gap(mean: float | None, worst: float | None) -> str:
    return "" if mean is None or worst is None else f"{100 * (mean - worst):.1f} below the mean"
