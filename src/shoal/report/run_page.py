"""The report of one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shoal.report.charts import fairness_chart, histogram_chart, line_chart, metric_chart, metrics_chart
from shoal.report.client_table import client_table, client_tracks
from shoal.report.page_parts import (
    Badge,
    Gallery,
    PageTable,
    Sketch,
    TableCell,
    Tile,
    document,
    gallery,
    toml,
)
from shoal.report.run_description import facts, population, progress, sample_text
from shoal.report.runs import RunView, flatten, number
from shoal.report.series import (
    Against,
    Axis,
    Histogram,
    Rejection,
    is_regression,
    known_and_new,
    last,
    own_metrics,
    participation,
    participation_histogram,
    percent,
    presence,
    rejections,
    total,
    track_of,
)
from shoal.report.table import COLUMNS, NOTHING, human_bytes, human_seconds
from shoal.report.timeline import MOST_ROWS, bits_chart, gantt_chart

_MOST = 20  # limit for rows of a table, and for charts of a method's own metrics
# summary entries that are shown elsewhere on the page
_TOLD = frozenset({"method", "dataset", "model", "seed", "rounds", "rejected", "personalised", *COLUMNS})

_NAMES = {
    "weights_sha256": "SHA-256 of the weights",
    "memory_sha256": "SHA-256 of the clients' memories",
    "auc": "Area under the ROC curve",
    "f1": "F1 score",
    "client_accuracy_std": "Standard deviation between clients",
    "finetuned_client_accuracy_std": "Standard deviation between fine-tuned clients",
    "finetuned_mean_client_mse": "Mean client MSE, fine-tuned",
    "finetuned_worst_client_mse": "Worst client MSE, fine-tuned",
    "finetuned_client_mse_std": "Standard deviation between fine-tuned clients",
}


class Rejected(NamedTuple):
    """The section on rejected replies."""

    replies: int
    reasons: PageTable
    left_out: int  # number of reasons too rare for the table
    charts: Gallery | None


def single_page(run: RunView, title: str) -> str:
    """Render the report of one run: model quality, costs, results per client, and the exact spec."""
    return document(
        "single.html",
        title,
        "Run report",
        facts(run),
        Badge("finished", "good") if run.finished else Badge(progress(run), "warn"),
        tiles=_tiles(run),
        client_table=client_table(run),
        **{section: gallery(sketches) for section, sketches in run_sketches(run).items()},
        rejected=_rejected(run),
        summary=_summary(run),
        spec=toml(flatten(run.spec)),
    )


def run_sketches(run: RunView) -> dict[str, list[Sketch]]:
    """The charts of each section, some of which may have nothing to show."""
    return {
        "learning": _learning(run),
        "clients": _clients(run),
        "arrivals": _arrivals(run),
        "devices": _devices(run),
        "own": [_own_sketch(run, name) for name in own_metrics([run])[:_MOST]],
    }


def _tiles(run: RunView) -> list[Tile]:
    rounds = max(len(run.rounds), 1)
    costs = []
    for cost, name in (("bytes_up", "Sent up"), ("bytes_down", "Sent down")):
        spent = total(run, cost)
        share = "" if spent is None else f"{human_bytes(spent / rounds)} per round"
        costs.append(Tile(name, human_bytes(spent), share))
    seconds, virtual = total(run, "seconds"), total(run, "virtual_seconds")
    more = f"simulated: {human_seconds(virtual)}" if virtual else ""
    if not more and seconds:
        more = f"{human_seconds(seconds / rounds)} per round"
    return [*_quality(run), *costs, Tile("Training time", human_seconds(seconds), more)]


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
    own = bool(run.summary.get("personalised"))
    spread = last(run, "client_accuracy_std")
    most_told = "" if highest is None else f"max {_percent(highest)}{where}"
    between = "" if spread is None else f"± {100 * spread:.1f} between clients"
    tiles = [
        Tile(f"{first} accuracy", _percent(accuracy), most_told),
        Tile("Mean client", _percent(mean), _and_finetuned(run, "mean", between)),
        Tile("Worst tenth of clients", _percent(worst), _and_finetuned(run, "worst", _gap(mean, worst))),
    ]
    return [*tiles[1:], tiles[0]._replace(name="On all clients' samples")] if own else tiles


def _and_finetuned(run: RunView, which: str, more: str) -> str:
    tuned = number(run.summary.get(f"finetuned_{which}_client_accuracy"))
    return more if tuned is None else f"{more}; fine-tuned {_percent(tuned)}"


def _learning(run: RunView) -> list[Sketch]:
    metric, name = ("mse", "MSE") if is_regression([run]) else ("accuracy", "Accuracy")
    time: Against = "virtual_seconds" if track_of(run, metric, "virtual_seconds") else "seconds"
    losses = {"loss": "Test", "clients.train_loss": "Training"}
    return [
        Sketch(lambda width: metric_chart([run], metric, "rounds", width), f"{name} over rounds"),
        Sketch(lambda width: metrics_chart(run, losses, Axis("Loss"), width), "Loss over rounds"),
        Sketch(lambda width: metric_chart([run], metric, "bytes", width), f"{name} against traffic"),
        Sketch(lambda width: metric_chart([run], metric, time, width), f"{name} against time"),
    ]


def _clients(run: RunView) -> list[Sketch]:
    rounds, clients = participation(run), population(run)
    histogram = participation_histogram(rounds, clients)
    titles = ("Rounds in which a client took part", "Clients")
    everybody = f"{len(rounds):,} of {max(clients or 0, len(rounds)):,} clients"
    scores = {"balanced_accuracy": "Balanced accuracy", "f1": "F1", "auc": "Area under ROC"}
    return [
        Sketch(
            lambda width: fairness_chart(run, width),
            "Accuracy among clients",
            f"{sample_text(run)} Band: one standard deviation between clients.".strip(),
        ),
        Sketch(
            lambda width: line_chart(client_tracks(run), percent("Accuracy"), "rounds", width),
            "Accuracy of each client",
            "On its own test samples, with the model that it would use.",
        ),
        Sketch(
            lambda width: histogram and histogram_chart(histogram, *titles, width),
            "Participation",
            f"{everybody} took part at least once.",
        ),
        Sketch(
            lambda width: metrics_chart(run, scores, Axis("Score", end=1), width),
            "Other scores",
            "On the global test set.",
        ),
    ]


def _arrivals(run: RunView) -> list[Sketch]:
    count = Axis("Clients present", whole=True)
    axis = Axis("Mean client MSE") if is_regression([run]) else percent("Mean client accuracy")
    return [
        Sketch(
            lambda width: line_chart(presence(run), count, "rounds", width),
            "Clients present",
            "Newcomers are clients that were absent in round 1.",
        ),
        Sketch(
            lambda width: line_chart(known_and_new(run), axis, "rounds", width),
            "Known clients and newcomers",
            "Each client with the model that it would use.",
        ),
    ]


def _devices(run: RunView) -> list[Sketch]:
    timed = [record for record in run.rounds if record.get("timeline")]
    if not timed:
        return []
    lines, number_of = timed[-1]["timeline"], timed[-1]["round"]
    return [
        Sketch(
            lambda width: gantt_chart(lines, width),
            f"Round {number_of} in virtual time",
            f"At most {MOST_ROWS} rows are shown: the slowest.",
        ),
        Sketch(
            lambda width: bits_chart(run.rounds, width),
            "Precision of local training",
            "How often each number format was assigned to a client, over all rounds.",
        ),
        Sketch(
            lambda width: metric_chart([run], "virtual_seconds", "rounds", width),
            "Virtual seconds per round",
        ),
    ]


def _own_sketch(run: RunView, name: str) -> Sketch:
    title = name.replace("_", " ").capitalize()
    return Sketch(lambda width: metric_chart([run], name, "rounds", width), title)


def _rejected(run: RunView) -> Rejected | None:
    found = rejections(run)
    if not found:
        return None
    reasons = Counter(entry.reason for entry in found).most_common()
    rows = [_reason([entry for entry in found if entry.reason == reason]) for reason, _ in reasons[:_MOST]]
    head = [
        TableCell("Reason", "text"),
        *map(TableCell, ("Replies", "Clients", "Rounds")),
        TableCell("Most often", "text"),
    ]
    rounds = int(run.rounds[-1]["round"])
    heights = np.bincount([entry.round for entry in found], minlength=rounds + 1)[1:]
    histogram = Histogram(heights, np.arange(1, rounds + 2))
    bars = Sketch(
        lambda width: histogram_chart(histogram, "Rounds", "Replies", width), "Rejected in each round"
    )
    return Rejected(len(found), PageTable(head, rows), len(reasons) - len(rows), gallery([bars]))


def _reason(entries: Sequence[Rejection]) -> list[TableCell]:
    clients = Counter(entry.client for entry in entries)
    first, final = entries[0].round, entries[-1].round
    often = ", ".join(f"{client} ({times}×)" for client, times in clients.most_common(5))
    return [
        TableCell(entries[0].reason, "text long"),
        TableCell(f"{len(entries):,}"),
        TableCell(f"{len(clients):,}"),
        TableCell(f"{first} to {final}" if first < final else f"{first}"),
        TableCell(f"client {often}", "text long"),
    ]


def _summary(run: RunView) -> PageTable:
    """The summary entries that are not shown elsewhere on the page, hashes first."""
    rest = {k: v for k, v in run.summary.items() if k not in _TOLD and isinstance(v, str | int | float)}
    order = sorted(rest, key=lambda name: (not name.endswith("sha256"), name))
    names = [_NAMES.get(k, k.replace("_", " ").capitalize()) for k in order]
    rows = [
        [TableCell(name, "text"), TableCell(_plain(rest[k]), "text long")]
        for k, name in zip(order, names, strict=True)
    ]
    return PageTable([TableCell("Name", "text"), TableCell("Value", "text")], rows)


def _plain(value: str | int | float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _known(run: RunView, summary: str, metric: str) -> float | None:
    told = number(run.summary.get(summary))
    return told if told is not None else last(run, metric)


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.2f} %"


def _gap(mean: float | None, worst: float | None) -> str:
    return "" if mean is None or worst is None else f"{100 * (mean - worst):.1f} below the mean"
