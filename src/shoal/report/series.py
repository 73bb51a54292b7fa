"""From runs to the numbers of a chart. Nothing here draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from shoal.report.runs import RunView, number

Against = Literal["rounds", "bytes", "seconds", "virtual_seconds"]

_COSTS: Mapping[Against, tuple[str, ...]] = {
    "rounds": (),
    "bytes": ("bytes_up", "bytes_down"),
    "seconds": ("seconds",),
    "virtual_seconds": ("virtual_seconds",),
}

# What every run may report; any other number in a round is the method's own.
KNOWN = frozenset(
    {"round", "accuracy", "mse", "loss", "clients.train_loss", "balanced_accuracy", "f1", "auc"}
    | {"mean_client_accuracy", "worst_client_accuracy", "client_accuracy_std"}
    | {"bytes_up", "bytes_down", "seconds", "virtual_seconds", "cohort", "rejected", "honest_weight"}
)


class Quantity(NamedTuple):
    """What an axis shows: its title, what stored values are multiplied with, and where it must end."""

    title: str
    factor: float = 1.0
    end: float | None = None


def percent(title: str) -> Quantity:
    """A share, shown in percent."""
    return Quantity(f"{title} (%)", 100, 100)


QUANTITIES: Mapping[str, Quantity] = {
    "accuracy": percent("Test accuracy"),
    "mse": Quantity("Test MSE"),
    "loss": Quantity("Test loss"),
    "clients.train_loss": Quantity("Training loss"),
    "balanced_accuracy": percent("Balanced accuracy"),
    "f1": Quantity("F1 score", end=1),
    "auc": Quantity("Area under the ROC curve", end=1),
    "mean_client_accuracy": percent("Mean client accuracy"),
    "worst_client_accuracy": percent("Accuracy of the worst tenth"),
    "attack_success": percent("Success of the attack"),
    "attackers_weight": percent("Weight given to attackers"),
}


class Curve(NamedTuple):
    """A line with a band of one standard deviation over seeds (all 0 where there is one seed)."""

    label: str
    slot: int  # the place of the label among all labels: the same colour in every chart of a page
    x: np.ndarray  # [points] float64
    mean: np.ndarray  # [points]
    std: np.ndarray  # [points]


def seeds_curve(label: str, slot: int, x: np.ndarray, values: np.ndarray) -> Curve:
    """A curve from values [seeds, points]."""
    std = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return Curve(label, slot, x, values.mean(axis=0), std)


def metric_curves(runs: Sequence[RunView], metric: str, against: Against = "rounds") -> list[Curve]:
    """One curve a label. Labels without a single number, or whose costs are unknown, have none.

    Seeds are joined round by round; against a cost, each point stands at the seeds' mean cost so far.
    A curve has the rounds that all of its seeds have: where some have stopped, the mean of the others
    would jump.
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


def track_of(run: RunView, metric: str, against: Against = "rounds") -> dict[int, tuple[float, float]]:
    """Round -> (what it had cost by then, value) for the rounds in which `metric` is a number."""
    track, spent = {}, 0.0
    for row in run.rounds:
        for cost in _COSTS[against]:
            price = number(row.get(cost))
            if price is None:  # a gap in the costs would shift everything after it
                return {}
            spent += price
        value = number(row.get(metric))
        if value is not None:
            track[int(row["round"])] = (spent if against != "rounds" else float(row["round"]), value)
    return track


def last(run: RunView, metric: str) -> float | None:
    """The latest value of a metric that was measured."""
    return next((v for row in reversed(run.rounds) if (v := number(row.get(metric))) is not None), None)


def is_regression(runs: Sequence[RunView]) -> bool:
    """Whether errors were measured, and no accuracies."""
    return _measured(runs, "mse") and not _measured(runs, "accuracy")


def _measured(runs: Sequence[RunView], metric: str) -> bool:
    finals = (number(run.summary.get(f"final_{metric}")) for run in runs)
    return any(final is not None for final in finals) or any(last(run, metric) is not None for run in runs)


def total(run: RunView, cost: str) -> float | None:
    """The summary's total of a cost, or for an unfinished run the sum so far."""
    if (told := number(run.summary.get(cost))) is not None:
        return told
    prices = [number(row.get(cost)) for row in run.rounds]
    known = [price for price in prices if price is not None]
    return sum(known) if known and len(known) == len(prices) else None


def own_metrics(runs: Sequence[RunView]) -> list[str]:
    """Names of the scalar metrics that the methods add to their rounds, in order of appearance."""
    names: dict[str, None] = {}
    for run in runs:
        for row in run.rounds:
            names.update((k, None) for k, v in row.items() if k not in KNOWN and number(v) is not None)
    return list(names)


def participation(run: RunView, clients: int | None = None) -> np.ndarray:
    """[clients] int64, descending: in how many rounds each client took part, 0 included."""
    counts = Counter(str(client) for row in run.rounds for client in row.get("cohort") or ())
    seen = sorted(counts.values(), reverse=True)
    return np.array(seen + [0] * max(0, (clients or 0) - len(seen)), dtype=np.int64)


class Rejection(NamedTuple):
    """A reply that was not accepted."""

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
