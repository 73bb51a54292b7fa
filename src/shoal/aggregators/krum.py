"""Krum and Multi-Krum: use the updates that are closest to their nearest neighbours.

Blanchard, El Mhamdi, Guerraoui, Stainer: Machine Learning with Adversaries: Byzantine Tolerant Gradient
Descent, NeurIPS 2017, section 4.

    s_i = sum of ||D_i - D_j||^2 over the n - f - 2 updates nearest to D_i      -> `krum_scores`
    Krum:        w <- w + D_k,                         s_k smallest             -> `Krum`
    Multi-Krum:  w <- w + mean of the m updates with the smallest s             -> `MultiKrum`

f is the expected number of attackers; n > 2 f + 2.

Departures: D_i is the change by local training, not one gradient. f may be a share of the cohort. m is n - f
unless it is given. If replies are lost in a round and n is too small for f, the round continues with the
largest f that n allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from shoal.aggregators.aggregator import check_amount, count_of
from shoal.aggregators.matrix import Decision, MatrixRule, UpdateMatrix, gram, squared_distances, weighted
from shoal.core.errors import SpecError


def krum_scores(squares: Tensor, attackers: int) -> Tensor:
    """[n]: the sum of each row's squared distances to its n - f - 2 nearest others, at least one of them."""
    n = len(squares)
    nearest = max(1, n - attackers - 2)
    return squares.sort(1).values[:, 1 : 1 + nearest].sum(1)  # the first is the distance to itself


def krum_chosen(squares: Tensor, attackers: int, count: int) -> Tensor:
    """[n] float64: 1 / count for the rows with the smallest scores, 0 for the others."""
    best = krum_scores(squares, attackers).sort(stable=True).indices[:count]
    coefficients = torch.zeros(len(squares), dtype=torch.float64)
    coefficients[best] = 1 / len(best)
    return coefficients


def check_krum(name: str, f: float, clients: int) -> None:
    """Raise `SpecError` unless there are more than 2 f + 2 clients, or no attackers."""
    attackers = count_of(f, clients)
    if attackers and clients <= 2 * attackers + 2:
        raise SpecError(
            f"{name} with f = {f:g} expects {attackers} attackers among {clients} clients a round, but needs "
            f"more than 2 f + 2 = {2 * attackers + 2} clients; let more take part, or lower f"
        )


def bearable(attackers: int, n: int) -> int:
    """The number of attackers that Krum can expect among n replies: fewer if replies were lost."""
    return max(0, min(attackers, (n - 3) // 2))


@dataclass(frozen=True)
class Krum(MatrixRule):
    """Takes the update with the best Krum score: the smallest distances to its nearest neighbours."""

    weighs: ClassVar[bool] = False

    f: float = 0.2  # attackers: a number, or a share of the cohort

    def __post_init__(self) -> None:
        check_amount("f", self.f, 0.5)

    def check_cohort(self, clients: int) -> None:
        """See `Aggregator`."""
        check_krum("krum", self.f, clients)

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`."""
        n = len(updates.ids)
        products = gram(updates.rows)
        chosen = krum_chosen(squared_distances(products), bearable(count_of(self.f, n), n), 1)
        return weighted(state, updates, chosen, products)


@dataclass(frozen=True)
class MultiKrum(MatrixRule):
    """Averages the updates with the best Krum scores; drops as many as there are expected attackers."""

    weighs: ClassVar[bool] = False

    f: float = 0.2  # attackers: a number, or a share of the cohort
    m: int | None = None  # how many to average; by default n - f

    def __post_init__(self) -> None:
        check_amount("f", self.f, 0.5)
        if self.m is not None and self.m < 1:
            raise SpecError(f"m must be at least 1, got {self.m}; leave it out to average n - f updates")

    def check_cohort(self, clients: int) -> None:
        """See `Aggregator`."""
        check_krum("multikrum", self.f, clients)

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`."""
        n = len(updates.ids)
        attackers = bearable(count_of(self.f, n), n)
        products = gram(updates.rows)
        count = n - attackers if self.m is None else self.m
        chosen = krum_chosen(squared_distances(products), attackers, count)
        return weighted(state, updates, chosen, products)
