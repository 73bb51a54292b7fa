"""The protocol of an attack: what some clients do instead of being honest."""

from __future__ import annotations

from abc import ABC

from shoal.core.data import Data
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.types import Reply


class Attack(ABC):
    """A behaviour of some clients, the same ones all through a run.

    It acts on their data before they train, or on their replies before anything else does: so it works with
    every method, codec and engine.
    """

    fraction: float  # of the population that attacks

    def attackers(self, population: int, key: Key) -> frozenset[int]:
        """Who attacks."""
        count = round(self.fraction * population)
        picked = key.numpy().choice(population, count, replace=False, shuffle=False)
        return frozenset(int(client) for client in picked)

    def poison(self, data: Data, key: Key) -> Data:
        """The data that an attacker trains on."""
        return data

    def lie(self, reply: Reply, key: Key) -> Reply:
        """The reply that an attacker gives."""
        return reply


def check_fraction(fraction: float) -> None:
    """Refuse a share that is none."""
    if not 0 <= fraction <= 1:
        raise SpecError(f"fraction must be in [0, 1], got {fraction:g}; 0.1 makes every tenth client attack")
