"""Bulyan: selects updates by repeated Krum, then averages the middle values of each coordinate.

El Mhamdi, Guerraoui, Rouault: The Hidden Vulnerability of Distributed Learning in Byzantium, ICML 2018,
section 4.

    n - 2 f times: take the update with the best Krum score out of the rest       -> `selected`
    each coordinate: the mean of the n - 4 f values nearest to the median         -> `middle`

f is the expected number of attackers; n >= 4 f + 3.

Departures: D_i is the change by local training, not one gradient. f may be a share of the cohort. If replies
are lost and n is too small for f, the round continues with the largest f that n allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from shoal.aggregators.aggregator import check_amount, count_of
from shoal.aggregators.krum import krum_scores
from shoal.aggregators.matrix import CHUNK, Decision, MatrixRule, UpdateMatrix, gram, squared_distances
from shoal.core.errors import SpecError


def selected(squares: Tensor, attackers: int, count: int) -> list[int]:
    """The rows that repeated Krum selects, from squared distances [n, n]."""
    left, chosen = list(range(len(squares))), []
    for _ in range(count):
        scores = krum_scores(squares[left][:, left], attackers)
        chosen.append(left.pop(int(scores.argmin())))
    return sorted(chosen)


def middle(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Each column's mean of the `count` values nearest to its median, and the share of the columns in which
    each row was among them."""
    means, kept = [], torch.zeros(len(rows), dtype=torch.float64)
    for piece in torch.split(rows.double(), CHUNK, 1):
        away = (piece - piece.quantile(0.5, dim=0)).abs()
        near = away.sort(dim=0, stable=True).indices[:count]
        means.append(piece.gather(0, near).mean(0))
        kept += torch.bincount(near.reshape(-1), minlength=len(rows)).double()
    return torch.cat(means), kept / rows.shape[1]


@dataclass(frozen=True)
class Bulyan(MatrixRule):
    """Selects updates by repeated Krum, and averages the middle values of each coordinate."""

    weighs: ClassVar[bool] = False

    f: float = 0.2  # expected attackers: a number, or a share of the cohort

    def __post_init__(self) -> None:
        check_amount("f", self.f, 0.25)

    def check_cohort(self, clients: int) -> None:
        """See `Aggregator`."""
        attackers = count_of(self.f, clients)
        if attackers and clients < 4 * attackers + 3:
            raise SpecError(
                f"bulyan with f = {self.f:g} expects {attackers} attackers among {clients} clients a round, "
                f"but needs at least 4 f + 3 = {4 * attackers + 3} clients; let more take part, or lower f"
            )

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`."""
        n = len(updates.ids)
        attackers = max(0, min(count_of(self.f, n), (n - 3) // 4))
        chosen = selected(squared_distances(gram(updates.rows)), attackers, n - 2 * attackers)
        step, kept = middle(updates.rows[chosen], max(1, n - 4 * attackers))
        weights = torch.zeros(n, dtype=torch.float64)
        weights[chosen] = kept / max(1, n - 4 * attackers)
        return Decision(state, step, weights)
