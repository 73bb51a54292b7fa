"""Sign flipping: attackers train honestly and return the opposite."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core.attack import Attack, check_fraction
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.tree import tree_map
from shoal.core.types import Reply


@dataclass(frozen=True)
class SignFlip(Attack):
    """Attackers return `-scale` times their update."""

    fraction: float = 0.1
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_fraction(self.fraction)

    def lie(self, reply: Reply, key: Key) -> Reply:
        """See `Attack`."""
        if "update" not in getattr(reply.payload, "_fields", ()):
            raise SpecError("[attack] sign_flip needs a method whose clients return updates")
        flipped = tree_map(
            lambda x: -self.scale * x if x.is_floating_point() else x, reply.payload.update.params
        )
        update = reply.payload.update._replace(params=flipped)
        return reply._replace(payload=reply.payload._replace(update=update))
