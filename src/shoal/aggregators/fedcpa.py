"""FedCPA: an update is normal if the same parameters are important in it as in the others.

Han, Park, Wu, Kim, Zhu, Xie, Cha: Towards Attack-tolerant Federated Learning via Critical Parameter
Analysis, ICCV 2023, section 3.

    c_i = |(w_i - w) w_i|, number by number, over all matrices
    T_i, B_i = the places of its largest and its smallest 1 %                   -> `critical`
    s_ij = mean over T and B of (Pearson(c_i, c_j on the common places) + 1) / 2
           + mean over T and B of |common places| / |places of either|          -> `likeness`
    s_i = mean_j s_ij + the same between c_i and c = |(w - w_before) w|
    a_i = s_i stretched to [0.01, 0.99], logit + 0.5, cut to [0, 1]             -> `normality`
    w <- w + mean of a_i (w_i - w) over those with a_i > 0        -> `CriticalParameters`

Departures: where the text leaves a choice, this follows the authors' code: Pearson's correlation, and a mean
that is not divided by the sum of a_i. In the first round the mean of the updates takes the place of
w - w_before. With fewer than two common places the correlation counts as 0.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.aggregators.matrix import Decision, MatrixRule, UpdateMatrix, floating, weighted
from shoal.core.errors import SpecError
from shoal.core.threads import parallel_map
from shoal.core.types import Weights
from shoal.kernels.extremes import comparison, extremes, importance
from shoal.parts.factors import is_matrix

PARTS = 4  # parts into which the pairs of models are divided for the threads


class Critical(NamedTuple):
    """The places of a model's most or least important parameters, ascending, and their importance."""

    places: np.ndarray  # [k] int64
    values: np.ndarray  # [k] float64


def critical(importance: np.ndarray, share: float) -> tuple[Critical, Critical]:
    """The most and the least important places; ties go to the first."""
    values = importance.astype(np.float32, copy=False)
    most, least = extremes(values, max(1, int(share * len(values))))
    return Critical(most, values[most].astype(np.float64)), Critical(least, values[least].astype(np.float64))


def likeness(models: Sequence[Sequence[Critical]], pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """[pairs] in [0, 2]: how far two models agree on their critical parameters and on their importance."""
    places = np.array([[one.places for one in model] for model in models])  # [models, 2, k]
    values = np.array([[one.values for one in model] for model in models])
    kinds, length = places.shape[1:]
    chosen = kinds * np.array(pairs, np.int64).reshape(-1, 1, 2) + np.arange(kinds)[:, None]
    compared = comparison(places.reshape(-1, length), values.reshape(-1, length))
    found = np.concatenate(parallel_map(compared, np.array_split(chosen.reshape(-1, 2), PARTS)))
    common, correlation = found.T.reshape(2, -1, kinds)
    agreed: np.ndarray = (common / (2 * length - common) + (correlation + 1) / 2).mean(1)
    return agreed


def normality(scores: Tensor) -> Tensor:
    """[n] in [0, 1], 1 for the highest score: steep in the middle, clipped at both ends."""
    low, high = scores.min(), scores.max()
    if not bool(high > low):
        return torch.ones_like(scores)
    level = ((scores - low) / (high - low)).clamp(0.01, 0.99)
    return (torch.logit(level) + 0.5).clamp(0, 1)


class CriticalState(NamedTuple):
    """The state of the rule."""

    before: Weights | None  # the model one round ago


@dataclass(frozen=True)
class CriticalParameters(MatrixRule):
    """Weights updates by how well their most and least important parameters match those of others."""

    weighs: ClassVar[bool] = False

    share: float = 0.01  # share of the parameters that are most important, and of those that are least

    def __post_init__(self) -> None:
        if not 0 < self.share <= 0.5:
            raise SpecError(f"share must be in (0, 0.5], got {self.share:g}; the paper uses 0.01")

    def init(self, model: Weights) -> CriticalState:
        """See `Aggregator`."""
        return CriticalState(None)

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`."""
        now, ranges = _vector(updates.model), _matrices(updates.model)
        rows = updates.rows.cpu()
        before = None if state.before is None else _vector(state.before)
        moved = rows.mean(0) if before is None else now - before
        reached = now + moved if before is None else now
        changed = (moved * reached).abs().numpy()
        whole = np.concatenate([changed[first:last] for first, last in ranges])

        def chosen(row: Tensor | None) -> tuple[Critical, Critical]:
            return critical(whole if row is None else _importance(row, now, ranges), self.share)

        models, n = parallel_map(chosen, [*rows, None]), len(rows)
        pairs, alike = list(combinations(range(n + 1), 2)), np.eye(n + 1)
        for (i, j), found in zip(pairs, likeness(models, pairs), strict=True):
            alike[i, j] = alike[j, i] = found
        weights = normality(torch.from_numpy(alike[:n, :n].mean(1) + alike[:n, n]))
        shares = weights / (weights > 0).sum()
        return weighted(CriticalState(updates.model), updates, shares)


def _vector(model: Weights) -> Tensor:
    """[numbers]: the model as a vector, in the order of the rows of an `UpdateMatrix`."""
    return torch.cat([value.flatten() for value in floating(model).values()]).cpu()


def _matrices(model: Weights) -> np.ndarray:
    """[matrices, 2] int64: where each matrix of the model begins and ends in this vector."""
    ends = np.cumsum([value.numel() for value in model.params.values()])
    ranges = [(end - value.numel(), end) for value, end in zip(model.params.values(), ends, strict=True)]
    chosen = [each for each, value in zip(ranges, model.params.values(), strict=True) if is_matrix(value)]
    return np.array(chosen, np.int64).reshape(-1, 2)


def _importance(row: Tensor, now: Tensor, ranges: np.ndarray) -> np.ndarray:
    """|D (w + D)| for the numbers in these ranges."""
    found = np.empty((ranges[:, 1] - ranges[:, 0]).sum(), np.float32)
    importance(row.float().numpy(), now.float().numpy(), ranges, found)
    return found
