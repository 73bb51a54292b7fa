"""FedCPA: an update is normal if it treats the same parameters as important as the others do.

Han, Park, Wu, Kim, Zhu, Xie, Cha: Towards Attack-tolerant Federated Learning via Critical Parameter Analysis,
ICCV 2023, section 3.

    c_i = |(w_i - w) w_i|, number by number, over all matrices
    T_i, B_i = the places of its largest and its smallest 1 %                   -> `critical`
    s_ij = mean over T and B of (Pearson(c_i, c_j on the common places) + 1) / 2
           + mean over T and B of |common places| / |places of either|          -> `likeness`
    s_i = mean_j s_ij + the same between c_i and c = |(w - w_before) w|
    a_i = s_i stretched to [0.01, 0.99], logit + 0.5, cut to [0, 1]             -> `normality`
    w <- w + mean of a_i (w_i - w) over those with a_i > 0        -> `CriticalParameters`

Departures: where the text leaves a choice this follows the authors' code: Pearson's correlation, and a mean
that is not divided by the sum of a_i. In the first round the mean of the updates stands for w - w_before.
With fewer than two places in common the correlation counts 0.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.aggregators.matrix import Decision, MatrixRule, UpdateMatrix
from shoal.core.errors import SpecError
from shoal.core.types import Weights
from shoal.parts.factors import is_matrix


class Critical(NamedTuple):
    """The places of a model's most or least important parameters, ascending, and how important they are."""

    places: np.ndarray  # [k] int64
    values: np.ndarray  # [k] float64


def critical(importance: np.ndarray, share: float) -> tuple[Critical, Critical]:
    """The most and the least important ones; of equal ones the first."""
    count = max(1, int(share * len(importance)))
    return _smallest(-importance, importance, count), _smallest(importance, importance, count)


def _smallest(keys: np.ndarray, values: np.ndarray, count: int) -> Critical:
    bound = np.partition(keys, count - 1)[count - 1]
    inside, ties = np.flatnonzero(keys < bound), np.flatnonzero(keys == bound)
    places = np.sort(np.concatenate([inside, ties[: count - len(inside)]]))
    return Critical(places, values[places].astype(np.float64))


def likeness(one: Sequence[Critical], two: Sequence[Critical]) -> float:
    """In [0, 2]: how far two models agree on what is important and what is not, and on how much."""
    pairs = list(zip(one, two, strict=True))
    return float(np.mean([_correlation(a, b) + _overlap(a, b) for a, b in pairs]))


def _overlap(one: Critical, two: Critical) -> float:
    """Jaccard's: what both have, of what either has."""
    both = len(np.intersect1d(one.places, two.places, assume_unique=True))
    return both / (len(one.places) + len(two.places) - both)


def _correlation(one: Critical, two: Critical) -> float:
    """Pearson's, from [-1, 1] to [0, 1], on the places that both have; 0.5 where there is none."""
    _, here, there = np.intersect1d(one.places, two.places, assume_unique=True, return_indices=True)
    first, second = one.values[here], two.values[there]
    if len(first) < 2 or not first.std() or not second.std():
        return 0.5
    return float((np.corrcoef(first, second)[0, 1] + 1) / 2)


def normality(scores: Tensor) -> Tensor:
    """[n] in [0, 1], from scores of which the highest is normal: steep in the middle, cut at both ends."""
    low, high = scores.min(), scores.max()
    if not bool(high > low):
        return torch.ones_like(scores)
    level = ((scores - low) / (high - low)).clamp(0.01, 0.99)
    return (torch.logit(level) + 0.5).clamp(0, 1)


class CriticalState(NamedTuple):
    """What is remembered."""

    before: Weights | None  # the model one round ago


@dataclass(frozen=True)
class CriticalParameters(MatrixRule):
    """Weighs updates by how normal their critical parameters are."""

    weighs: ClassVar[bool] = False

    share: float = 0.01  # of the parameters: as many are most important, and as many least

    def __post_init__(self) -> None:
        if not 0 < self.share <= 0.5:
            raise SpecError(f"share must be in (0, 0.5], got {self.share:g}; the paper uses 0.01")

    def init(self, model: Weights) -> CriticalState:
        """See `Aggregator`."""
        return CriticalState(None)

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`."""
        now = _matrices(updates.model)
        rows = _matrix_rows(updates)
        moved = rows.mean(0) if state.before is None else now - _matrices(state.before)
        reached = now + moved if state.before is None else now
        whole = critical((moved * reached).abs().numpy(), self.share)
        clients = [critical((row * (now + row)).abs().numpy(), self.share) for row in rows]
        n = len(clients)
        between = torch.eye(n, dtype=torch.float64)
        for i, j in combinations(range(n), 2):
            between[i, j] = between[j, i] = likeness(clients[i], clients[j])
        apart = torch.tensor([likeness(one, whole) for one in clients], dtype=torch.float64)
        weights = normality(between.mean(1) + apart)
        shares = weights / (weights > 0).sum()
        return Decision(CriticalState(updates.model), updates.combined(shares), shares)


def _matrices(model: Weights) -> Tensor:
    """[numbers]: all parameters that lie in matrices."""
    return torch.cat([value.flatten() for value in model.params.values() if is_matrix(value)]).cpu()


def _matrix_rows(updates: UpdateMatrix) -> Tensor:
    """[clients, numbers]: their updates."""
    parts = updates.parts()
    names = [name for name, value in updates.model.params.items() if is_matrix(value)]
    return torch.cat([parts[name].flatten(1) for name in names], 1).cpu()
