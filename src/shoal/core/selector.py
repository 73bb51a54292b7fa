"""The protocol of a selector: which clients take part in a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from shoal.core.data import Data
from shoal.core.population import Population
from shoal.core.types import Cohort, Moment, Reply, Report, Tree


class Selector(ABC):
    """A rule that samples a cohort. Its state is passed in and returned."""

    asks_report: ClassVar[bool] = False  # whether clients report their speed and rates in every round
    by_samples: ClassVar[bool] = False  # whether sample counts weight the selection instead of the mean

    def init(self) -> Any:
        """The state before the first round."""
        return ()

    @property
    def asks_profile(self) -> bool:
        """Whether new clients are asked for a profile: True if the selector overrides `profile`."""
        return type(self).profile is not Selector.profile

    @property
    def observes(self) -> bool:
        """Whether the selector sees every accepted reply: True if it overrides `observe`."""
        return type(self).observe is not Selector.observe

    def profile(self, data: Data) -> Tree:
        """The profile of a new client, computed at the client. If overridden, `admit` receives it."""
        return ()

    def admit(self, state: Any, profiles: Mapping[int, Tree]) -> Any:
        """The state after new clients joined with these profiles."""
        return state

    @abstractmethod
    def select(
        self, state: Any, available: Population, reports: Mapping[int, Report], moment: Moment
    ) -> Cohort:
        """The cohort of a round: available clients, each at most once.

        `reports` holds the clients' device reports for this round, if `asks_report`. A client that is drawn
        several times trains once; its setting `count` says how often it was drawn.
        """

    def observe(self, state: Any, client: int, reply: Reply, seconds: float) -> Any:
        """The state after an accepted reply that took `seconds` of virtual time; 0 without [devices]."""
        return state

    def sized(self, population: int) -> Selector:
        """The selector for a population of this size, on which its default cohort size may depend."""
        return self

    def check(self, population: int) -> None:  # noqa: B027  # most selectors fit every population
        """Raise `SpecError` if the selector cannot work with a population of this size."""
