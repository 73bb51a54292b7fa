"""FoolsGold: clients whose updates keep pointing the same way are treated as one client.

Fung, Yoon, Beschastnikh: The Limitations of Federated Learning in Sybil Settings, RAID 2020, Algorithm 1.

    H_i = sum of the updates of client i so far;   c_ij = cos(H_i, H_j);   v_i = max_j c_ij
    c_ij <- c_ij v_i / v_j where v_j > v_i      (pardoning)
    a_i = 1 - max_j c_ij;   a_i <- a_i / max a;   a_i <- logit(a_i) + 0.5, cut to [0, 1] -> `learning_rates`
    w <- w + sum_i a_i D_i / sum_i a_i

Departures: H is kept as a sketch of 4,096 numbers, whose cosines differ from those of the sums by a few
hundredths. The paper does not divide by sum a; without this division a cohort of similar clients takes no
step. If all a are 0, all clients count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shoal.aggregators.alignment import HISTORY, SIGNS, folded
from shoal.aggregators.matrix import Decision, MatrixRule, UpdateMatrix, gram, weighted
from shoal.core.types import Weights


def learning_rates(cosines: Tensor) -> Tensor:
    """[n] float64 in [0, 1]: the weight of each client, from cosines [n, n] between histories."""
    apart = cosines.clone().fill_diagonal_(-torch.inf)
    most = apart.max(1).values
    pardon = (most[None, :] > most[:, None]) & (most[None, :] > 0)
    ratio = torch.where(pardon, most[:, None] / torch.where(most == 0, 1.0, most)[None, :], 1.0)
    rates = (1 - (apart * ratio).fill_diagonal_(-torch.inf).max(1).values).clamp(0, 1)
    rates = rates / rates.max().clamp(min=1e-30)
    inside = rates.clamp(1e-5, 0.99)
    return ((inside / (1 - inside)).log() + 0.5).clamp(0, 1)


class Histories(NamedTuple):
    """The state of the rule."""

    sums: Mapping[int, Tensor]  # by client: a sketch of the sum of its updates


@dataclass(frozen=True)
class FoolsGold(MatrixRule):
    """Averages updates, with less weight for clients whose updates keep pointing the same way."""

    def init(self, model: Weights) -> Histories:
        """See `Aggregator`."""
        return Histories({})

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`."""
        sketches = folded(updates.rows[:, None], HISTORY, SIGNS)[:, 0]
        sums = {
            client: state.sums.get(client, 0.0) + row
            for client, row in zip(updates.ids, sketches, strict=True)
        }
        products = gram(torch.stack(list(sums.values())))
        norms = products.diagonal().sqrt().clamp(min=1e-30)
        n = len(updates.ids)
        rates = learning_rates(products / norms / norms[:, None]) if n > 1 else torch.ones(1).double()
        counts = rates * updates.weights
        counts = counts if float(counts.sum()) > 0 else updates.weights
        return weighted(Histories({**state.sums, **sums}), updates, counts / counts.sum())
