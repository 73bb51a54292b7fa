"""The stability of a client's layers: how little local training changes them.

A layer is a parameter tensor; `before` and `after` are its values before and after training. A higher score
means more stable:

    cos_over_dim    cos(after, before) / size            GENE-FL, eq. 9: for the most part 1 / size
    cos             cos(after, before)
    rel_l2          -||after - before|| / ||before||
    l1              -||after - before||_1 / size
    emd             -the earth mover's distance between the values before and after
    activity        -the share of its numbers that moved by more than 0.0005              FedLG
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shoal.core.flat import Flat, in_one_vector, vectors
from shoal.kernels.model_steps import count_moved
from shoal.kernels.products import products

Score = Literal["cos_over_dim", "cos", "rel_l2", "l1", "emd", "activity"]

ACTIVE = 0.0005  # a number that moves by more than this counts as active


def _cosine(before: Tensor, after: Tensor) -> float:
    if torch.equal(before, after):
        return 1.0
    if before.dtype == torch.float32 and before.device.type == "cpu":
        (first, both), (_, second) = products([before.numpy(), after.numpy()]).tolist()
    else:
        first, both, second = (float(a.double() @ b.double()) for a, b in _pairs(before, after))
    lengths = math.sqrt(first) * math.sqrt(second)
    return both / lengths if lengths else 0.0


def _pairs(before: Tensor, after: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [(before, before), (before, after), (after, after)]


def _relative_change(before: Tensor, after: Tensor) -> float:
    change, length = float((after - before).norm()), float(before.norm())
    return -change / length if length else (-torch.inf if change else 0.0)


def _moved_earth(before: Tensor, after: Tensor) -> float:
    return -float((after.sort().values - before.sort().values).abs().mean())


def _activity(before: Tensor, after: Tensor) -> float:
    return -int(((after - before).abs() > ACTIVE).count_nonzero()) / max(len(before), 1)


SCORES: dict[Score, Callable[[Tensor, Tensor], float]] = {
    "cos_over_dim": lambda before, after: _cosine(before, after) / len(before),  # eq. 9
    "cos": _cosine,
    "rel_l2": _relative_change,
    "l1": lambda before, after: -float((after - before).abs().mean()),
    "emd": _moved_earth,
    "activity": _activity,
}


def ranked(score: Score, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> list[str]:
    """The names of the layers, the most stable first; ties in the model's order."""
    whole = vectors(before, after) if score == "activity" else None
    if whole is not None and any(vector.dtype != torch.float32 for vector in whole):
        whole = None
    found = _scores(score, before, after) if whole is None else _activities(in_one_vector(before), *whole)
    return sorted(found, key=lambda name: -found[name])


def _scores(score: Score, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> dict[str, float]:
    exact = score in ("activity", "cos", "cos_over_dim")  # these need no copies in float64
    pairs = {name: [values[name].detach().reshape(-1) for values in (before, after)] for name in before}
    if not exact:
        pairs = {name: [value.double() for value in pair] for name, pair in pairs.items()}
    return {name: SCORES[score](*pair) for name, pair in pairs.items()}


def _activities(names: Flat, before: Tensor, after: Tensor) -> dict[str, float]:
    """`_activity` of every layer, in one pass over the whole model."""
    ends = np.array([*accumulate(names.layout.sizes, initial=0)])
    counts = np.empty(len(names), np.int64)
    count_moved(counts, _numbers(before), _numbers(after), ends, ACTIVE)
    return {
        name: -count / max(size, 1)
        for name, count, size in zip(names, counts.tolist(), names.layout.sizes, strict=True)
    }


def _numbers(vector: Tensor) -> np.ndarray:
    return vector.detach().cpu().contiguous().numpy()


def within_budget(names: Sequence[str], sizes: Mapping[str, int], budget: float) -> list[str]:
    """The layers, taken in this order, that still fit into a share of the model's bytes."""
    left = budget * sum(sizes.values())
    chosen = []
    for name in names:
        if sizes[name] <= left:
            chosen.append(name)
            left -= sizes[name]
    return chosen
