"""Selectors that treat all clients alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.selector import Population, Selector
from shoal.core.types import Cohort


@dataclass(frozen=True)
class Uniform(Selector):
    """A number (`count`) or share (`fraction`) of the clients, each equally likely, without replacement."""

    observes: ClassVar[bool] = False

    count: int | None = None
    fraction: float | None = None

    def __post_init__(self) -> None:
        if self.count is not None and self.fraction is not None:
            raise SpecError(
                f"give count or fraction, not both, got count = {self.count}, fraction = {self.fraction:g}"
            )
        if self.count is not None and self.count < 1:
            raise SpecError(f"count must be at least 1, got {self.count}")
        if self.fraction is not None and not 0 < self.fraction <= 1:
            cure = f"; for a fixed cohort use count = {self.fraction:g}" if self.fraction > 1 else ""
            raise SpecError(f"fraction must be in (0, 1], got {self.fraction:g}{cure}")

    def select(self, state: Any, available: Population, key: Key) -> Cohort:
        """See `Selector`."""
        size = min(self.size(len(available)), len(available))
        picked = key.numpy().choice(len(available), size, replace=False, shuffle=False)
        return Cohort(tuple(sorted(available[i] for i in picked.tolist())), {}, len(available))

    def size(self, population: int) -> int:
        """How many of a population take part: a tenth unless the spec says otherwise."""
        if self.count is not None:
            return self.count
        return max(1, round((self.fraction or 0.1) * population))

    def check(self, population: int) -> None:
        """See `Selector`."""
        if self.count is not None and self.count > population:
            raise SpecError(
                f"count = {self.count} is more than the population of {population}; "
                f'lower it, raise partition.clients, or use selector.name = "all"'
            )


@dataclass(frozen=True)
class All(Selector):
    """Every client that can be reached."""

    observes: ClassVar[bool] = False

    def select(self, state: Any, available: Population, key: Key) -> Cohort:
        """See `Selector`."""
        return Cohort(tuple(available), {}, len(available))
