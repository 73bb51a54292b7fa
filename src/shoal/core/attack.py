"""The protocol of an attack: what some clients do instead of being honest."""

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
USUAL = 0.1  # of the clients attack where the spec does not say how many


@dataclass(frozen=True)
class Attack(ABC):  # noqa: B024  # each attack overrides the half it needs
    """A behaviour of some clients, the same ones all through a run.

    It acts on their data before they train, or on their replies before anything else does: so it works with
    every method, codec and engine. A field of its own follows those that all attacks have.
    """

    fraction: float | None = None  # of the population that attacks; a tenth if nothing is said
    attackers: tuple[int, ...] | None = None  # or who they are
    first: int = 1  # the round of the first attack, counted from 1
    last: int | None = None  # and of the last one; none: to the end
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
        """Raise `SpecError` for a value of its own fields that makes no sense."""

    def members(self, population: int, key: Key) -> frozenset[int]:
        """Who attacks."""
        if self.attackers is not None:
            unknown = [client for client in self.attackers if client >= population]
            if unknown:
                raise SpecError(
                    f"[attack] there is no client {unknown[0]} to attack; ids are 0 to {population - 1}"
                )
            return frozenset(self.attackers)
        fraction = USUAL if self.fraction is None else self.fraction
        count = round(fraction * population)
        if fraction and not count:
            raise SpecError(
                f"[attack] fraction = {fraction:g} of {population} clients is nobody; "
                "raise it, or name attackers"
            )
        picked = key.numpy().choice(population, count, replace=False, shuffle=False)
        return frozenset(picked.tolist())

    def active(self, round: int) -> bool:
        """Whether attackers attack in this round, counted from 0."""
        return self.first <= round + 1 and (self.last is None or round + 1 <= self.last)

    def poison(self, samples: Batch, classes: int, key: Key) -> Batch:
        """The samples that an attacker trains on, as many as it holds. The key is the same in all rounds."""
        return samples

    def forge(self, reply: Reply, context: Context) -> Reply:
        """What one attacker answers in place of its honest reply."""
        return reply

    def lie(
        self, replies: Sequence[Reply], contexts: Sequence[Context], known: Sequence[Reply], cohort: int
    ) -> list[Reply]:
        """What the attackers of an exchange answer in place of their honest replies.

        `known` are the honest replies that they see, their own first; the field `knows` says whose. `cohort`
        is how many clients take part in all. An attack for one attacker alone needs only `forge`.
        """
        return [self.forge(reply, context) for reply, context in zip(replies, contexts, strict=True)]

    def lie_alone(self, reply: Reply, context: Context) -> Reply:
        """What one attacker answers that sees its own honest reply only."""
        (lie,) = self.lie([reply], [context], [reply], 1)
        return lie

    def success(self, predict: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> float | None:
        """The share of test samples on which the attack has its way; None where harm is all it wants.

        `predict` gives the classes that the global model finds.
        """
        return None


def altered(reply: Reply, change: Callable[[Tensor], Tensor]) -> Reply:
    """The reply with each floating tensor of its update changed, in float64; the rest as it was."""

    def one(leaf: Tree) -> Tree:
        return change(leaf.double()).to(leaf.dtype) if _is_floating(leaf) else leaf

    return with_target(reply, tree_map(one, target(reply)))


def in_unison(
    replies: Sequence[Reply], known: Sequence[Reply], change: Callable[[Tensor], Tensor]
) -> list[Reply]:
    """All with the same update: `change` makes it, tensor by tensor, from those known, [known, ...]."""

    def together(*leaves: Tree) -> Tree:
        if not _is_floating(leaves[0]):
            return leaves[0]
        return change(torch.stack(leaves).double()).to(leaves[0].dtype)

    common = tree_map(together, *(target(reply) for reply in known))
    return [with_target(reply, tree_map(_either, target(reply), common)) for reply in replies]


def _either(own: Tree, common: Tree) -> Tree:
    return common if _is_floating(own) else own


def normal(key: Key) -> Callable[[Tensor], Tensor]:
    """A source of standard normal numbers, as many as the tensor it is given has."""
    draw = key.torch()
    return lambda x: torch.randn(x.shape, generator=draw, dtype=torch.float64).to(x.device)


def target(reply: Reply) -> Tree:
    """What of a reply is worth a lie: its update, or all of a payload that has none."""
    payload = reply.payload
    return payload.update if "update" in getattr(payload, "_fields", ()) else payload


def with_target(reply: Reply, value: Tree) -> Reply:
    """The reply with another `target`."""
    payload = reply.payload
    if "update" in getattr(payload, "_fields", ()):
        value = payload._replace(update=value)
    return reply._replace(payload=value)


def _is_floating(leaf: Tree) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()
