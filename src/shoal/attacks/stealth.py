"""Stealth: attackers that run DSVD-FL's own rule beforehand, and manipulate as much as it tolerates.

x_i is an attacker's honest update, mu the mean of all updates that they see.

    update <- x_i - gamma mu                                                    -> `Stealth.lie`
    gamma = the largest one, up to `most`, with which attackers still have half of a fair weight after the
            same round was repeated `rounds` times                              -> `passes`

They keep their own deviation, with which they differ like honest clients, and subtract what all updates have
in common: the direction in which the model would learn.

Departures: none; the attack is ours. It knows everything but the key of the round's sketches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.aggregators.alignment import SIGNS
from shoal.aggregators.dsvd import Similarity
from shoal.aggregators.dsvd_trust import nothing_known
from shoal.core.attack import Attack, Knows, altered, target
from shoal.core.errors import SpecError
from shoal.core.types import Context, Reply, Weights

HALVINGS = 5


@dataclass(frozen=True)
class Stealth(Attack):
    """Attackers subtract as much of the mean from their updates as DSVD-FL's rule lets pass."""

    knows: Knows = "all"

    most: float = 4.0
    rounds: int = 3  # number of rounds for which the manipulation should pass

    def check(self) -> None:
        """See `Attack`."""
        if not self.most > 0 or self.rounds < 1:
            raise SpecError(
                f"most must be > 0 and rounds at least 1, got {self.most:g} and {self.rounds}; "
                "4 and 3 are usual"
            )

    def lie(
        self, replies: Sequence[Reply], contexts: Sequence[Context], known: Sequence[Reply], cohort: int
    ) -> list[Reply]:
        """See `Attack`."""
        if not all(isinstance(target(reply), Weights) for reply in known):  # no update: the opposite
            return [altered(reply, lambda x: -x) for reply in replies]
        own = len(replies)
        seen = {
            name: torch.stack([target(reply).params[name] for reply in known])
            for name in target(known[0]).params
        }
        low, high = 0.0, self.most
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if passes(seen, own, middle, self.rounds) else (low, middle)
        return [_without(reply, seen, low or self.most / 2**HALVINGS) for reply in replies]


def passes(seen: Mapping[str, Tensor], own: int, gamma: float, rounds: int) -> bool:
    """Whether the first `own` of the updates [n, ...] (by tensor) keep half of a fair weight with `gamma`."""
    told = {name: torch.cat([x[:own] - gamma * x.mean(0), x[own:]]) for name, x in seen.items()}
    n = len(next(iter(seen.values())))
    rule, past = Similarity(), nothing_known(n)
    weights, agreement = (
        past[0],
        torch.full_like(past[0], torch.nan),
    )  # at first there is nothing to agree with
    for _ in range(rounds):
        weights, past = rule.weigh(told, rule.rank, past, agreement, SIGNS)
        agreement = torch.ones_like(agreement)
    return float(weights[:own].sum()) >= 0.5 * own / n


def _without(reply: Reply, seen: Mapping[str, Tensor], gamma: float) -> Reply:
    """The reply, minus `gamma` times the mean of the updates seen."""
    update = target(reply)
    params = {
        name: (value - gamma * seen[name].double().mean(0)).to(value.dtype)
        for name, value in update.params.items()
    }
    return reply._replace(payload=reply.payload._replace(update=update._replace(params=params)))
