"""Min-max: attackers go as far astray as they can without being farther from anybody than some honest client.

Shejwalkar, Houmansadr: Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for
Federated Learning, NDSS 2021, section IV-C. x_i are the attackers' own honest updates, mu their mean.

    update <- mu + gamma p                                                                 -> `MinMax.lie`
    gamma = the largest one with max_i |mu + gamma p - x_i| <= max_ij |x_i - x_j|          -> `reach`
    p = -std(x) ("std"), -mu / |mu| ("unit"), or -sign(mu) ("sign")                        -> `DIRECTIONS`

Departures: gamma is solved for: it is the smallest of the positive roots of one quadratic equation for each
attacker. The paper halves an interval. With one attacker there is no distance to hide in, and the attack is
honest.
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

# From the updates' tensors [attackers, ...]; the length of p does not matter, gamma makes up for it.
DIRECTIONS: dict[Direction, Callable[[Tensor], Tensor]] = {
    "std": lambda x: -x.std(0, correction=0),
    "unit": lambda x: -x.mean(0),
    "sign": lambda x: -x.mean(0).sign(),
}


@dataclass(frozen=True)
class MinMax(Attack):
    """Attackers all return the mean of their updates, pushed as far as their own distances allow."""

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
    """How far `mean + gamma push` may go; summed up tensor by tensor, so that no update is copied whole."""
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
    room = between.max() - away  # >= 0: the mean is never farther from one than the farthest other
    if length == 0:
        return 0.0
    # |offset_i + gamma p|^2 = away_i + 2 gamma along_i + gamma^2 length <= max between
    roots = ((along.square() + length * room.clamp(min=0)).sqrt() - along) / length
    return float(roots.min())
