"""Clients that train: how training starts is a method's affair, how it goes on the solver's.

What a client does is written for one client, as a generator that hands over a `Start` and goes on with what
was trained from it:

    trained = yield Start(message.model, terms)
    return memory, Reply(ModelUpdate(trained.update(message.model)), data.weight, {})

So an engine may stop many clients at this point and train all of them in one call of the solver's kernels,
and no method knows of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.data import Batching, Block, Data
from shoal.core.key import Key
from shoal.core.method import Axes, Method
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.tree import row, subtract
from shoal.core.types import Cohort, Context, Memory, ModelMessage, ModelUpdate, Moment, Reply, Weights


class Start(NamedTuple):
    """How one client's training begins, and what is added to it."""

    weights: Weights
    terms: tuple[Term, ...] = ()  # of the loss
    shift: Mapping[str, Tensor] | None = None  # added to every gradient


@dataclass(frozen=True)
class Trained:
    """What one client's training gives.

    Until the next client trains, the weights may lie in the resident model: `update` reads them there.
    """

    held: Weights
    steps: int
    loss: Tensor  # [] the mean over the steps, each before its update and without terms
    borrowed: bool = False
    change: Weights | None = None  # what `update` gives, where it is known already

    @property
    def weights(self) -> Weights:
        """The trained weights, to keep."""
        if not self.borrowed:
            return self.held
        return Weights(*({name: _plain(value) for name, value in part.items()} for part in self.held))

    def update(self, start: Weights) -> Weights:
        """What training changed: the trained weights less those that it started from."""
        if self.change is not None:
            return self.change
        with torch.no_grad():
            change: Weights = subtract(self.held, start)
        return change


def _plain(value: Tensor) -> Tensor:
    return value.detach().clone(memory_format=torch.contiguous_format)


class TrainedBlock(NamedTuple):
    """What the training of several clients gives, each tensor with a leading client axis."""

    weights: Weights
    change: Weights
    steps: np.ndarray  # [clients] int64
    losses: Tensor  # [clients] float32
    sound: bool  # whether the solver has seen that no change is too large for the gate

    def single(self, position: int) -> Trained:
        """That of the client at `position`."""
        weights, change = row(self.weights, position), row(self.change, position)
        return Trained(weights, int(self.steps[position]), self.losses[position], change=change)


class Solver(ABC):
    """How a client trains on its own samples."""

    @property
    @abstractmethod
    def batching(self) -> Batching:
        """How samples are dealt into steps."""

    @abstractmethod
    def rate(self, round: int) -> float:
        """The learning rate in a round, counted from 0."""

    @abstractmethod
    def train(
        self,
        task: Task,
        start: Weights,
        data: Data,
        context: Context,
        terms: tuple[Term, ...] = (),
        shift: Mapping[str, Tensor] | None = None,
    ) -> Trained:
        """Train one client on its scheduled batches."""

    def fits(self, task: Task, terms: tuple[Term, ...]) -> bool:
        """Whether `train_block` can train this model with these terms."""
        return False

    def train_block(
        self,
        task: Task,
        starts: Sequence[Start],
        block: Block,
        keys: Sequence[Key],
        round: int,
        threads: int,
    ) -> TrainedBlock:
        """Train several clients at once, each to the bits that `train` gives; asked only where it `fits`.

        All have the same terms. One start stands for all. Each has a key for its randomness besides the order
        of its samples: `context.key.fold("noise")`.
        """
        raise NotImplementedError


Course = Generator[Start, Trained, tuple[Memory, Reply]]  # of one client's update


class Training(Method):
    """A method whose clients train; by default the model that they are sent, of which they return the change.

    A method adds its fields, `local` among them, and its server. Where its clients do more, it overrides
    `client_training`; where they do something else altogether, `client_update`.
    """

    local: Solver
    terms: tuple[Term, ...] = ()  # of the loss

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        check_training(self.local, self.terms, task)

    def dispatch(self, task: Task, state: Any, cohort: Cohort, moment: Moment) -> Any:
        """See `Method`. Of a state with a field `model`."""
        return ModelMessage(state.model)

    def model(self, state: Any) -> Weights | None:
        """See `Method`."""
        model: Weights = state.model
        return model

    @property
    def batching(self) -> Batching:
        """See `Method`."""
        return self.local.batching

    def client_training(
        self, task: Task, memory: Memory, message: Any, data: Data, context: Context
    ) -> Course:
        """One client's work: yields how training starts, is sent what was trained, returns its answer."""
        trained = yield Start(message.model, self.terms)
        payload = ModelUpdate(trained.update(message.model))
        return memory, Reply(payload, data.weight, {"train_loss": trained.loss})

    def client_update(
        self, task: Task, memory: Memory, message: Any, data: Data, context: Context
    ) -> tuple[Memory, Reply]:
        """See `Method`."""
        return self.trained_alone(
            task, self.client_training(task, memory, message, data, context), data, context
        )

    def trained_alone(
        self, task: Task, course: Course, data: Data, context: Context, start: Start | None = None
    ) -> tuple[Memory, Reply]:
        """The end of one client's work: from its beginning, or from a start that it has handed over."""
        try:
            start = next(course) if start is None else start
            while True:
                trained = self.local.train(task, start.weights, data, context, start.terms, start.shift)
                start = course.send(trained)
        except StopIteration as end:
            answer: tuple[Memory, Reply] = end.value
            return answer


def check_training(local: Solver, terms: Sequence[Term], task: Task) -> None:
    """Raise `SpecError` if clients cannot train this task so."""
    for term in terms:
        term.check(task)


def in_courses(method: Method) -> bool:
    """Whether clients do what `client_training` says, and so can be stopped where training starts."""
    return isinstance(method, Training) and type(method).client_update is Training.client_update


def is_plain(method: Method) -> bool:
    """Whether its clients only train the model that they are sent: nothing is to be asked of each."""
    return in_courses(method) and type(method).client_training is Training.client_training  # type: ignore[attr-defined]
