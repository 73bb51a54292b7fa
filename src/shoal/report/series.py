"""The data series of charts, taken from the records of runs; no drawing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from shoal.report.runs import RunView, number

Against = Literal["rounds", "bytes", "seconds", "virtual_seconds"]

Track = dict[int, tuple[float, float]]  # round -> (cost up to that round, value)

MOST_BINS = 40

_COSTS: Mapping[Against, tuple[str, ...]] = {
    "rounds": (),
    "bytes": ("bytes_up", "bytes_down"),
    "seconds": ("seconds",),
    "virtual_seconds": ("virtual_seconds",),
}

# What rounds of any method may record; any other number is a metric of the method's own.
KNOWN = frozenset(
    {"round", "accuracy", "mse", "loss", "clients.train_loss", "balanced_accuracy", "f1", "auc"}
    | {"mean_client_accuracy", "worst_client_accuracy", "client_accuracy_std"}
    | {"present", "present_newcomers"}
    | {f"finetuned_mean_client_{measure}" for measure in ("accuracy", "mse")}
    | {f"finetuned_worst_client_{measure}" for measure in ("accuracy", "mse")}
    | {f"finetuned_client_{measure}_std" for measure in ("accuracy", "mse")}
    | {
        "bytes_up",
        "bytes_down",
        "seconds",
        "predicted_classes",
        "virtual_seconds",
        "cohort",
        "rejected",
        "honest_weight",
    }
)


class Axis(NamedTuple):
    """An axis of a chart: its title, and how stored values become the numbers on it."""

    title: str
    factor: float = 1.0  # stored values are multiplied by it
    end: float | None = None  # the largest value that makes sense, such as 100 %
    whole: bool = False  # whether only whole numbers make sense


def percent(title: str) -> Axis:
    """The axis of a share, which is shown in percent."""
    return Axis(f"{title} (%)", 100, 100)


METRIC_AXES: Mapping[str, Axis] = {
    "accuracy": percent("Test accuracy"),
    "mse": Axis("Test MSE"),
    "loss": Axis("Test loss"),
    "clients.train_loss": Axis("Training loss"),
    "balanced_accuracy": percent("Balanced accuracy"),
    "f1": Axis("F1 score", end=1),
    "auc": Axis("Area under the ROC curve", end=1),
    "mean_client_accuracy": percent("Mean client accuracy"),
    "worst_client_accuracy": percent("Accuracy of the worst tenth"),
    "newcomers.mean_client_accuracy": percent("Mean newcomer accuracy"),
    "attack_success": percent("Success of the attack"),
    "attackers_weight": percent("Weight given to attackers"),
}


class Curve(NamedTuple):
    """A line with a band of one standard deviation over seeds (all 0 for a single seed)."""

    label: str
    slot: int  # the number of the label, which has the same colour in every chart of a page
    x: np.ndarray  # [points] float64
    mean: np.ndarray  # [points]
    std: np.ndarray  # [points]


def seeds_curve(label: str, slot: int, x: np.ndarray, values: np.ndarray) -> Curve:
    """A curve from values [seeds, points]."""
    std = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return Curve(label, slot, x, values.mean(axis=0), std)


def metric_curves(runs: Sequence[RunView], metric: str, against: Against = "rounds") -> list[Curve]:
    """One curve per label with the metric and known costs: the mean over seeds, by round.

    Against a cost, the x of a point is the cost up to that round, averaged over seeds. A curve has only the
    rounds that all seeds of the label have: if one seed stopped early, the mean over the others would jump.
    """
    groups: dict[str, list[RunView]] = {}
    for run in runs:
        groups.setdefault(run.label, []).append(run)
    found = []
    for slot, (label, group) in enumerate(groups.items()):
        tracks = [track for run in group if (track := track_of(run, metric, against))]
        common = sorted(set.intersection(*map(set, tracks))) if tracks else []
        if common:
            grid = np.array([[track[r] for r in common] for track in tracks])  # [seeds, points, 2]
            found.append(seeds_curve(label, slot, grid[:, :, 0].mean(axis=0), grid[:, :, 1]))
    return found


def track_of(run: RunView, metric: str, against: Against = "rounds") -> Track:
    """The values of `metric` and their costs, for the rounds in which it is a number."""
    track: Track = {}
    spent = 0.0
    for row in run.rounds:
        for cost in _COSTS[against]:
            price = number(row.get(cost))
            if price is None:  # a gap in the costs would shift everything after it
                return {}
            spent += price
        value = number(_entry(row, metric))
        if value is not None:
            track[int(row["round"])] = (spent if against != "rounds" else float(row["round"]), value)
    return track


def _entry(row: Mapping[str, Any], metric: str) -> Any:
    """An entry of a record, or of a table in it: `newcomers.clients`."""
    group, _, name = metric.partition(".")
    inner = row.get(group)
    return inner.get(name) if isinstance(inner, Mapping) else row.get(metric)


def known_and_new(run: RunView) -> list[Curve]:
    """The means over known clients and over newcomers by round; none if no newcomer was evaluated.

    As long as there are no newcomers, the mean over all clients is the mean over the known ones.
    """
    mean = "mean_client_mse" if is_regression([run]) else "mean_client_accuracy"
    new, known = track_of(run, f"newcomers.{mean}"), track_of(run, f"known.{mean}")
    known |= {round: point for round, point in track_of(run, mean).items() if round not in new}
    return _side_by_side(known, new) if new else []


def presence(run: RunView) -> list[Curve]:
    """The number of known clients and newcomers present in each round; none without arrivals."""
    new = track_of(run, "present_newcomers")
    known = {r: (x, all - new[r][1]) for r, (x, all) in track_of(run, "present").items() if r in new}
    return _side_by_side(known, new)


def _side_by_side(known: Track, new: Track) -> list[Curve]:
    curves = []
    for slot, (label, track) in enumerate((("Known clients", known), ("Newcomers", new))):
        if track:
            x, y = np.array([track[round] for round in sorted(track)]).T
            curves.append(seeds_curve(label, slot, x, y[None]))
    return curves


def last(run: RunView, metric: str) -> float | None:
    """The latest value of a metric; None if it was never measured."""
    return next((v for row in reversed(run.rounds) if (v := number(row.get(metric))) is not None), None)


def is_regression(runs: Sequence[RunView]) -> bool:
    """Whether the runs measured squared errors and no accuracies."""
    return _measured(runs, "mse") and not _measured(runs, "accuracy")


def _measured(runs: Sequence[RunView], metric: str) -> bool:
    finals = (number(run.summary.get(f"final_{metric}")) for run in runs)
    return any(final is not None for final in finals) or any(last(run, metric) is not None for run in runs)


def total(run: RunView, cost: str) -> float | None:
    """The total cost: from the summary, or for an unfinished run the sum so far."""
    if (told := number(run.summary.get(cost))) is not None:
        return told
    prices = [number(row.get(cost)) for row in run.rounds]
    known = [price for price in prices if price is not None]
    return sum(known) if known and len(known) == len(prices) else None


def own_metrics(runs: Sequence[RunView]) -> list[str]:
    """Names of the metrics that methods add to a round's record, in order of appearance."""
    names: dict[str, None] = {}
    for run in runs:
        for row in run.rounds:
            names.update((k, None) for k, v in row.items() if k not in KNOWN and number(v) is not None)
    return list(names)


class Histogram(NamedTuple):
    """The number of values in each bin. Bin i holds the integers from edges[i] to edges[i + 1] - 1."""

    heights: np.ndarray  # [bins] int64
    edges: np.ndarray  # [bins + 1] int64


def participation(run: RunView) -> Counter[str]:
    """The number of rounds in which each client took part, without clients that never did."""
    return Counter(str(client) for row in run.rounds for client in row.get("cohort") or ())


def participation_histogram(rounds: Mapping[str, int], clients: int | None) -> Histogram | None:
    """A histogram of clients by number of rounds; None if all clients took part equally often.

    `rounds` comes from `participation`, `clients` is the size of the population (None: unknown). Clients that
    never took part are counted by subtraction, so a million of them cost nothing.
    """
    heights = np.bincount(np.array([*rounds.values()], np.int64), minlength=1)
    heights[0] = max(0, (clients or 0) - len(rounds))
    found = np.flatnonzero(heights)
    if len(found) < 2:
        return None
    first, last = int(found[0]), int(found[-1])
    width = -(-(last + 1 - first) // MOST_BINS)
    edges = np.arange(first, last + width + 1, width)
    return Histogram(np.add.reduceat(heights, edges[:-1]), edges)


class Rejection(NamedTuple):
    """A reply that the server refused."""

    round: int
    client: str
    reason: str


def rejections(run: RunView) -> list[Rejection]:
    """All rejected replies, in order."""
    return [
        Rejection(
            int(row["round"]), str(entry.get("client", "?")), str(entry.get("reason", "no reason given"))
        )
        for row in run.rounds
        for entry in row.get("rejected") or ()
        if isinstance(entry, Mapping)
    ]
