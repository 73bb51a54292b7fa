"""Min-max: attackers send the most harmful update that is no farther from others than honest ones are.

Shejwalkar, Houmansadr: Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for
Federated Learning, NDSS 2021, section IV-C. x_i are the attackers' own honest updates, mu is their mean.

    update <- mu + gamma p                                                                 -> `MinMax.lie`
    gamma = the largest one with max_i |mu + gamma p - x_i| <= max_ij |x_i - x_j|          -> `reach`
    p = -std(x) ("std"), -mu / |mu| ("unit"), or -sign(mu) ("sign")                        -> `DIRECTIONS`

Departures: gamma is computed exactly, as the smallest positive root of one quadratic equation per attacker;
the paper uses bisection. With one attacker, all distances are 0, and the attack has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from shoal.core.attack import Attack, Knows, in_unison, target
from shoal.core.tree import tensors
from shoal.core.types import Context, Reply

Direction = Literal["std", "unit", "sign"]

# p from the stacked updates [attackers, ...]; its length does not matter, because gamma scales it.
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
        gamma = reach(Distances.of(known, push))
        return in_unison(replies, known, lambda x: x.mean(0) + gamma * push(x))


class Distances(NamedTuple):
    """Distances between updates and from `mean + gamma push`, summed over tensors to avoid whole copies."""

    between: Tensor  # [n, n]: squared distances between updates
    away: Tensor  # [n]: squared distances from the mean
    along: Tensor  # [n]: inner products of mean - update with the push
    length: float  # of the push, squared

    @classmethod
    def of(cls, replies: Sequence[Reply], push: Callable[[Tensor], Tensor]) -> Distances:
        """The distances for these replies."""
        count = len(replies)
        between = torch.zeros(count, count, dtype=torch.float64)
        along, away, length = between[0].clone(), between[0].clone(), 0.0
        for leaves in zip(*(tensors(target(reply)) for reply in replies), strict=True):
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
        return cls(between, away, along, length)


def reach(found: Distances) -> float:
    """The largest gamma for `mean + gamma push`."""
    room = found.between.max() - found.away  # >= 0: the mean is never farther away than the farthest update
    if found.length == 0:
        return 0.0
    # |offset_i + gamma p|^2 = away_i + 2 gamma along_i + gamma^2 length <= max between
    roots = ((found.along.square() + found.length * room.clamp(min=0)).sqrt() - found.along) / found.length
    return float(roots.min())
