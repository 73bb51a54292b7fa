"""The protocol of a selector: who takes part in a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from shoal.core.data import Data
from shoal.core.types import Cohort, Moment, Reply, Tree

Population = Sequence[int]  # ids of the clients that can be reached; often a `range`, so never listed


class Selector(ABC):
    """A rule that picks a cohort. What it remembers is passed in and returned."""

    by_samples: ClassVar[bool] = False  # whether clients are drawn by their samples, and so must count alike

    def init(self) -> Any:
        """What is remembered before the first round."""
        return ()

    @property
    def asks_profile(self) -> bool:
        """Whether clients are profiled when they arrive: if the selector says how."""
        return type(self).profile is not Selector.profile

    @property
    def observes(self) -> bool:
        """Whether it hears of every accepted reply: if it takes note of any."""
        return type(self).observe is not Selector.observe

    def profile(self, data: Data) -> Tree:
        """What a newcomer tells of itself; runs at the client. Override it, and `admit` is told."""
        return ()

    def admit(self, state: Any, profiles: Mapping[int, Tree]) -> Any:
        """Take note of newcomers and what they told of themselves."""
        return state

    @abstractmethod
    def select(
        self, state: Any, available: Population, reports: Mapping[int, Tree], moment: Moment
    ) -> Cohort:
        """The cohort of a round: available clients, none twice.

        `reports` are what clients tell of themselves in this round, where the engine asks them. The setting
        `count` of a client that was drawn several times says how often; it trains once.
        """

    def observe(self, state: Any, client: int, reply: Reply, seconds: float) -> Any:
        """Take note of an accepted reply and the time it took."""
        return state

    def check(self, population: int) -> None:  # noqa: B027  # most selectors fit every population
        """Raise `SpecError` if a population of this size cannot be served."""
