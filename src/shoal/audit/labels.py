"""Recover the labels of a batch from the gradient of the last layer.

Zhao, Mopuri, Bilen: iDLG: Improved Deep Leakage from Gradients, 2020. For one sample and the cross entropy,
the gradient of the last layer's bias is p - 1[c = y], negative at the true class and nowhere else; the row of
a class in the gradient of the weights is that number times the features, so that its sum has the same sign if
the features are not negative. Both hold for sums over several steps. With several samples, each is assumed to
lower the entry of its class by the same amount.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from shoal.core.task import Task

LabelRule = Literal["bias", "rows"]


def by_bias(gradient: Tensor, samples: int = 1) -> list[int]:
    """The labels of `samples` samples, from the bias gradient [classes] of a mean loss."""
    return _greedy(gradient, samples)


def by_rows(gradient: Tensor, samples: int = 1) -> list[int]:
    """The same from the weight gradient [classes, features], for nonnegative features."""
    return _greedy(gradient.sum(1), samples)


def _greedy(scores: Tensor, samples: int) -> list[int]:
    """Repeatedly take the most negative entry, and remove one sample's share from it."""
    left = scores.double().clone()
    share = -left.clamp(max=0).sum() / samples
    found = []
    for _ in range(samples):
        found.append(int(left.argmin()))
        left[found[-1]] += share
    return sorted(found)


def found_labels(task: Task, gradient: Mapping[str, Tensor], samples: int) -> dict[LabelRule, list[int]]:
    """The labels found by each rule whose tensor is available; empty for a regression."""
    if task.last is None or task.loss == "squared_error":
        return {}
    weight, bias = gradient.get(f"{task.last}weight"), gradient.get(f"{task.last}bias")
    found: dict[LabelRule, list[int]] = {}
    if bias is not None:
        found["bias"] = by_bias(bias, samples)
    if weight is not None:
        found["rows"] = by_rows(weight, samples)
    return found
