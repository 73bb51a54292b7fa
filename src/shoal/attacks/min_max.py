"""Min-max: attackers send the most harmful update that is no farther from others than honest ones are.

Shejwalkar, Houmansadr: Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for
Federated Learning, NDSS 2021, section IV-C. x_i are the attackers' own honest updates, mu is their mean.

    update <- mu + gamma p                                                                 -> `MinMax.lie`
    gamma = the largest one with max_i |mu + gamma p - x_i| <= max_ij |x_i - x_j|          -> `reach`
    p = -std(x) ("std"), -mu / |mu| ("unit"), or -sign(mu) ("sign")                        -> `DIRECTIONS`

Departures: gamma is computed exactly, as the smallest positive root of one quadratic equation per attacker;
the paper uses bisection. With one attacker all distances are 0, and the attack has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from shoal.core.attack import Attack, Knows, in_unison, target
from shoal.core.tree import tensors
from shoal.core.types import Context, Reply

Direction = Literal["std", "unit", "sign"]

# From the stacked updates [attackers, ...]; the length of p does not matter, because gamma scales it.
DIRECTIONS: dict[Direction, Callable[[Tensor], Tensor]] = {
    "std": lambda x: -x.std(0, correction=0),
    "unit": lambda x: -x.mean(0),
    "sign": lambda x: -x.mean(0).sign(),
}


@dataclass(frozen=True)
class MinMax(Attack):
    """Attackers all send the mean of their updates, shifted as far as the distances between them allow."""

    knows: Knows = "colluders"

    direction: Direction = "std"

    def lie(
        self, replies: Sequence[Reply], contexts: Sequence[Context], known: Sequence[Reply], cohort: int
    ) -> list[Reply]:
        """See `Attack`."""
        push = DIRECTIONS[self.direction]
        gamma = reach([tensors(target(reply)) for reply in known], push)
        return in_unison(replies, known, lambda x: x.mean(0) + gamma * push(x))


def reach(updates: Sequence[Sequence[Tensor]], push: Callable[[Tensor], Tensor]) -> float:
    """The largest gamma for `mean + gamma push`; summed per tensor, so that no update is copied whole."""
    count = len(updates)
    between, along = torch.zeros(count, count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    away, length = torch.zeros(count, dtype=torch.float64), 0.0
    for leaves in zip(*updates, strict=True):
        if not leaves[0].is_floating_point():
            continue
        x = torch.stack(leaves).double()
        step, offsets = push(x).reshape(-1), (x.mean(0) - x).reshape(count, -1)
        products = offsets @ offsets.T
        squares = products.diagonal()
        away += squares
        between += squares[:, None] + squares[None, :] - 2 * products
        along += offsets @ step
        length += float(step @ step)
    room = between.max() - away  # >= 0: the mean is never farther away than the farthest update
    if length == 0:
        return 0.0
    # |offset_i + gamma p|^2 = away_i + 2 gamma along_i + gamma^2 length <= max between
    roots = ((along.square() + length * room.clamp(min=0)).sqrt() - along) / length
    return float(roots.min())
