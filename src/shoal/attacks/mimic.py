"""Mimicry: attackers all send the update of one honest client, so that it counts several times.

Karimireddy, He, Jaggi: Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing, ICLR 2022,
section 3.2. x_i are the honest updates, mu is their mean.

    update <- x_k,   k the honest client with the largest |x_k - mu|            -> `Mimic.lie`

No single update is wrong: with heterogeneous clients, a majority-based rule follows the chosen client, and
forgets what the others know.

Departures: the paper chooses the client once, by the direction in which honest updates of the first
rounds differ most; here it is chosen again in each round. An attacker that sees no honest client's update
sends its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from shoal.core.attack import Attack, Knows, in_unison, target
from shoal.core.tree import tensors
from shoal.core.types import Context, Reply


@dataclass(frozen=True)
class Mimic(Attack):
    """Attackers all send the update of the honest client that is farthest from the others."""

    knows: Knows = "all"

    def lie(
        self, replies: Sequence[Reply], contexts: Sequence[Context], known: Sequence[Reply], cohort: int
    ) -> list[Reply]:
        """See `Attack`."""
        honest = known[len(replies) :]
        if not honest:
            return list(replies)
        return in_unison(replies, [honest[farthest(honest)]], lambda x: x[0])


def farthest(replies: Sequence[Reply]) -> int:
    """The position of the update with the largest distance from the mean."""
    away = torch.zeros(len(replies), dtype=torch.float64)
    for leaves in zip(*(tensors(target(reply)) for reply in replies), strict=True):
        if leaves[0].is_floating_point():
            x = torch.stack(leaves).double().reshape(len(replies), -1)
            away += (x - x.mean(0)).square().sum(1)
    return int(away.argmax())
