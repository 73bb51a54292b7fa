"""Local training: every client trains alone. The baseline that a federation has to beat.

A client that takes part in a round continues to train its own model on its own samples. Nothing is sent in
either direction. All clients start from the same initial weights as with other methods, so that the
difference from this baseline is the gain from federation.

Departures: there is no paper to depart from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shoal.core.data import Data
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.training import Course, Start, Training
from shoal.core.types import Cohort, Context, Metrics, Moment, Reply, Weights
from shoal.solver.sgd import Sgd


class Nothing(NamedTuple):
    """An empty message, state, accumulator or payload."""


@dataclass(frozen=True)
class Local(Training):
    """Trains without communication: every client keeps its own model."""

    local: Sgd = field(default_factory=Sgd)
    terms: tuple[Term, ...] = ()

    def init(self, task: Task, key: Key) -> Nothing:
        """See `Method`."""
        return Nothing()

    def dispatch(self, task: Task, state: Nothing, cohort: Cohort, moment: Moment) -> Nothing:
        """See `Method`."""
        return Nothing()

    def serve(self, state: Nothing, cohort: Cohort) -> Nothing:
        """See `Method`."""
        return Nothing()

    def begin(self, state: Nothing, cohort: Cohort) -> Nothing:
        """See `Method`."""
        return Nothing()

    def fold(self, acc: Nothing, client: int, sent: Any, reply: Reply) -> Nothing:
        """See `Method`."""
        return acc

    def finish(self, task: Task, state: Nothing, acc: Nothing, moment: Moment) -> tuple[Nothing, Metrics]:
        """See `Method`."""
        return state, {}

    def model(self, state: Nothing) -> None:
        """See `Method`."""

    def client_init(self, task: Task, key: Key) -> Weights:
        """See `Method`."""
        return task.init(key)

    def client_training(
        self, task: Task, memory: Weights, message: Any, data: Data, context: Context
    ) -> Course:
        """See `Training`."""
        trained = yield Start(memory, self.terms)
        return trained.weights, Reply(Nothing(), None, {})

    def local_model(self, memory: Weights, message: Any) -> Weights:
        """See `Method`."""
        return memory
