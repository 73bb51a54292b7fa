"""Measures of robustness against attackers, computed from the record of a run alone.

Accuracies are those of evaluated rounds. With `clean` the accuracy of the same run without an attack, and f
the share of clients that attack:

    degradation = clean - attacked          tolerance = attacked / clean          quotient = attacked (1 - f)

An aggregation rule that weights its clients records `weights` by client. How well they separate honest
clients from attackers is measured round by round.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.metrics import auc

CONVERGED = 0.95  # of the final accuracy


class AccuracySummary(NamedTuple):
    """Statistics of a run's accuracy over its rounds."""

    average: float
    final: float
    maximum: float
    spread: float  # the standard deviation over rounds
    rounds_to_max: int
    seconds_to_max: float
    convergence_round: int  # the first round with 95 % of the final accuracy
    converged: float  # the mean accuracy from that round on


def accuracy_summary(records: Sequence[Mapping[str, Any]]) -> AccuracySummary | None:
    """The summary of a run; None if no round was evaluated."""
    evaluated = [record for record in records if record.get("accuracy") is not None]
    if not evaluated:
        return None
    values = np.array([record["accuracy"] for record in evaluated], np.float64)
    best, settled = int(values.argmax()), int((values >= CONVERGED * values[-1]).argmax())
    last = evaluated[best]["round"]
    return AccuracySummary(
        float(values.mean()),
        float(values[-1]),
        float(values[best]),
        float(values.std()),
        last,
        float(sum(record["seconds"] for record in records if record["round"] <= last)),
        evaluated[settled]["round"],
        float(values[settled:].mean()),
    )


def degradation(clean: float, attacked: float) -> float:
    """The accuracy lost to the attack."""
    return clean - attacked


def tolerance(clean: float, attacked: float) -> float | None:
    """The share of the clean accuracy that remains under attack; None if the clean accuracy is 0."""
    return attacked / clean if clean else None


def quotient(attacked: float, share: float) -> float:
    """The accuracy under attack, discounted by the share of clients that attack."""
    return attacked * (1 - share)


class Roc(NamedTuple):
    """A ROC curve: attackers caught against false alarms, over all thresholds."""

    alarms: tuple[float, ...]  # the share of honest clients that are suspected
    caught: tuple[float, ...]  # the share of attackers that are suspected


def roc(weights: Mapping[Any, float], attackers: Collection[int]) -> Roc | None:
    """The ROC curve of suspecting clients with low weights; None without attackers or honest clients."""
    lying = np.array([int(client) in attackers for client in weights])
    if lying.all() or not lying.any():
        return None
    values = np.array([float(weight) for weight in weights.values()])
    bounds = np.unique(values)
    caught = [0.0, *(float((values[lying] <= bound).mean()) for bound in bounds)]
    alarms = [0.0, *(float((values[~lying] <= bound).mean()) for bound in bounds)]
    return Roc(tuple(alarms), tuple(caught))


def detection(records: Sequence[Mapping[str, Any]]) -> float | None:
    """The mean area under the ROC curve of the weights, over rounds with both kinds of client.

    It is the probability that an honest client weighs more than an attacker: 1 separates them perfectly, 0.5
    is chance.
    """
    areas = []
    for record in records:
        weights, attackers = record.get("weights"), set(record.get("attackers") or ())
        honest = np.array([int(client) not in attackers for client in weights or ()])
        if weights and honest.any() and not honest.all():
            areas.append(auc(np.array([float(w) for w in weights.values()]), honest))
    return float(np.mean(areas)) if areas else None
