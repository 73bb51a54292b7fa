"""The protocol of an attack: what malicious clients do."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from shoal.core.data import Batch
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.tree import tree_map
from shoal.core.types import Context, Reply, Tree

Knows = Literal["own", "colluders", "all"]  # whose honest replies attackers see before they answer
USUAL = 0.1  # the fraction of clients that attack, if the spec names neither fraction nor attackers


@dataclass(frozen=True)
class Attack(ABC):  # noqa: B024  # each attack overrides the half it needs
    """The behaviour of malicious clients; the attackers stay the same throughout a run.

    It changes their data before training, or their replies before anything else sees them, so it works with
    every method, codec and engine. Fields of a subclass follow the fields that all attacks have.
    """

    fraction: float | None = None  # of the population that attacks; a tenth by default
    attackers: tuple[int, ...] | None = None  # their ids, instead of a fraction
    first: int = 1  # the round of the first attack, counted from 1
    last: int | None = None  # the round of the last attack; None: the end of the run
    knows: Knows = "own"

    def __post_init__(self) -> None:
        if self.fraction is not None and self.attackers is not None:
            raise SpecError(f"give fraction or attackers, not both, got fraction = {self.fraction:g}")
        if self.fraction is not None and not 0 <= self.fraction <= 1:
            cure = "0.1 makes every tenth client attack"
            raise SpecError(f"fraction must be in [0, 1], got {self.fraction:g}; {cure}")
        if self.attackers is not None and (
            len(set(self.attackers)) < len(self.attackers) or min(self.attackers, default=0) < 0
        ):
            raise SpecError(f"attackers must be different client ids such as [0, 3], got {self.attackers}")
        if self.first < 1:
            raise SpecError(f"first must be at least 1, the first round, got {self.first}")
        if self.last is not None and self.last < self.first:
            raise SpecError(f"last must be at least first = {self.first}, got {self.last}")
        self.check()

    def check(self) -> None:  # noqa: B027  # not every attack has fields of its own
        """Raise `SpecError` if a field of the subclass has an invalid value."""

    def members(self, population: int, key: Key) -> frozenset[int]:
        """The ids of the attackers."""
        if self.attackers is not None:
            unknown = [client for client in self.attackers if client >= population]
            if unknown:
                raise SpecError(f"[attack] client {unknown[0]} cannot attack: ids are 0 to {population - 1}")
            return frozenset(self.attackers)
        fraction = USUAL if self.fraction is None else self.fraction
        count = round(fraction * population)
        if fraction and not count:
            raise SpecError(
                f"[attack] fraction = {fraction:g} of {population} clients is no client; "
                "raise it, or name attackers"
            )
        picked = key.numpy().choice(population, count, replace=False, shuffle=False)
        return frozenset(picked.tolist())

    def active(self, round: int) -> bool:
        """Whether attackers attack in this round, counted from 0."""
        return self.first <= round + 1 and (self.last is None or round + 1 <= self.last)

    def poison(self, samples: Batch, classes: int, key: Key) -> Batch:
        """The samples that an attacker trains on, as many as its own. The key is the same in all rounds."""
        return samples

    def forge(self, reply: Reply, context: Context) -> Reply:
        """The reply that one attacker sends instead of its honest reply."""
        return reply

    def lie(
        self, replies: Sequence[Reply], contexts: Sequence[Context], known: Sequence[Reply], cohort: int
    ) -> list[Reply]:
        """The replies that the attackers of an exchange send instead of their honest replies.

        `known` are the honest replies that they see, their own first; the field `knows` says whose. `cohort`
        is the size of the whole cohort. An attack without collusion needs only `forge`.
        """
        return [self.forge(reply, context) for reply, context in zip(replies, contexts, strict=True)]

    def lie_alone(self, reply: Reply, context: Context) -> Reply:
        """The forged reply of an attacker that sees only its own honest reply."""
        (lie,) = self.lie([reply], [context], [reply], 1)
        return lie

    def success(self, predict: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> float | None:
        """The share of test samples on which the attack succeeds; None for attacks without a target.

        `predict` gives the classes that the global model predicts.
        """
        return None


def altered(reply: Reply, change: Callable[[Tensor], Tensor]) -> Reply:
    """The reply with `change` applied, in float64, to each floating-point tensor of its update."""

    def one(leaf: Tree) -> Tree:
        return change(leaf.double()).to(leaf.dtype) if _is_floating(leaf) else leaf

    return with_target(reply, tree_map(one, target(reply)))


def in_unison(
    replies: Sequence[Reply], known: Sequence[Reply], change: Callable[[Tensor], Tensor]
) -> list[Reply]:
    """Give all replies the same update: `change` computes it per tensor from the known ones, [known, ...]."""

    def together(*leaves: Tree) -> Tree:
        if not _is_floating(leaves[0]):
            return leaves[0]
        return change(torch.stack(leaves).double()).to(leaves[0].dtype)

    common = tree_map(together, *(target(reply) for reply in known))
    return [with_target(reply, tree_map(_either, target(reply), common)) for reply in replies]


def _either(own: Tree, common: Tree) -> Tree:
    return common if _is_floating(own) else own


def normal(key: Key) -> Callable[[Tensor], Tensor]:
    """A function that draws standard normal numbers in the shape of the tensor it is given."""
    draw = key.torch()
    return lambda x: torch.randn(x.shape, generator=draw, dtype=torch.float64).to(x.device)


def target(reply: Reply) -> Tree:
    """The part of a reply that attacks change: its update, or the whole payload if it has none."""
    payload = reply.payload
    return payload.update if "update" in getattr(payload, "_fields", ()) else payload


def with_target(reply: Reply, value: Tree) -> Reply:
    """The reply with `value` in place of its `target`."""
    payload = reply.payload
    if "update" in getattr(payload, "_fields", ()):
        value = payload._replace(update=value)
    return reply._replace(payload=value)


def _is_floating(leaf: Tree) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()
