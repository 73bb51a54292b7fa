"""Measures of predictions: accuracy, F1, AUC, and how they vary over clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from torch import Tensor

MetricName = Literal["accuracy", "balanced_accuracy", "f1", "auc"]


def measures(scores: np.ndarray, y: np.ndarray, metrics: Sequence[MetricName]) -> dict[str, float]:
    """Accuracy and the other metrics asked for. Classes that are missing in the test set do not count.

    With two classes, F1 and AUC are those of the positive class, otherwise the mean over classes. Values that
    are not finite (AUC with one class only, a diverged model) are returned as they are.
    """
    predicted = scores.argmax(1)
    present = np.unique(y)
    hits = predicted == y
    found: dict[str, float] = {"accuracy": float(hits.mean())}
    if "balanced_accuracy" in metrics:
        found["balanced_accuracy"] = float(np.mean([hits[y == c].mean() for c in present]))
    counted = [1] if scores.shape[1] == 2 else list(present)
    if "f1" in metrics:
        found["f1"] = float(np.mean([_f1(predicted == c, y == c) for c in counted]))
    if "auc" in metrics:
        found["auc"] = float(np.mean([auc(scores[:, c], y == c) for c in counted]))
    return found


def _f1(predicted: np.ndarray, true: np.ndarray) -> float:
    marked = int(predicted.sum()) + int(true.sum())
    return 2 * int((predicted & true).sum()) / marked if marked else 0.0


def auc(scores: np.ndarray, true: np.ndarray) -> float:
    """The probability that a positive sample scores higher than a negative one (ties count half)."""
    positives, negatives = int(true.sum()), int((~true).sum())
    if not positives or not negatives or not np.isfinite(scores).all():
        return float("nan")
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # equal scores get the mean of their ranks
    above = ranks[place][true].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


def fairness(clients: Sequence[Mapping[str, Tensor]], measure: str) -> dict[str, float]:
    """How a measure varies over clients: mean, mean of the worst tenth (at least one client) and std."""
    values = np.sort([float(client[measure]) for client in clients])
    worst = values if measure == "accuracy" else values[::-1]
    tenth = max(1, len(values) // 10)
    with np.errstate(invalid="ignore"):  # the deviation of infinite values is NaN; no warning needed
        return {
            f"mean_client_{measure}": float(values.mean()),
            f"worst_client_{measure}": float(worst[:tenth].mean()),
            f"client_{measure}_std": float(values.std()),
        }
