"""Methods whose clients train: the method says how training starts, the solver trains.

The work of a client is written for one client, as a generator that yields a `Start` and receives the trained
weights:

    trained = yield Start(message.model, terms)
    return memory, Reply(ModelUpdate(trained.update(message.model)), data.weight, {})

So an engine can pause many clients at this point and train all of them in one kernel call, without the method
knowing about it. `ComputeLoss` and `ComputeFisher` ask for numbers in the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.control import Controls, next_controls
from shoal.core.data import Batching, Block, Data
from shoal.core.fisher import fisher_diagonal
from shoal.core.flat import Flat
from shoal.core.key import Key
from shoal.core.method import Axes, Method, overridden
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.tree import row, subtract
from shoal.core.types import (
    Cohort,
    Context,
    Memory,
    ModelMessage,
    ModelUpdate,
    Moment,
    Reply,
    Setting,
    Weights,
)


class Start(NamedTuple):
    """How one client's training starts: its initial weights, loss terms and gradient shift.

    A client may also train at another rate, another model than the task's, or on other samples than its own.
    """

    weights: Weights
    terms: tuple[Term, ...] = ()  # added to the loss
    shift: Mapping[str, Tensor] | None = None  # added to every gradient
    less: Mapping[str, Tensor] | None = None  # subtracted from the shift
    only_update: bool = False  # whether the trained weights themselves are not wanted
    pace: float = 1.0  # times the learning rate
    task: Task | None = None  # the model to train
    data: Data | None = None  # the samples and mini-batches
    controls: bool = False  # whether the control variate that follows on `less` is wanted

    @property
    def whole_shift(self) -> Mapping[str, Tensor] | None:
        """The shift as one value."""
        if self.shift is None or self.less is None:
            return self.shift
        shift: Mapping[str, Tensor] = subtract(self.shift, self.less)
        return shift


class ComputeLoss(NamedTuple):
    """A request: the mean loss of a model over all of a client's samples. `yield` returns it, [] float64."""

    weights: Weights


class ComputeFisher(NamedTuple):
    """A request: the diagonal of a model's Fisher information on all of a client's samples, as a `Flat`."""

    weights: Weights


@dataclass(frozen=True)
class Trained:
    """The result of one client's training.

    The weights may live in the resident model until the next client trains; `update` reads them there.
    """

    held: Weights | None  # None: only the update was asked for
    steps: int
    loss: Tensor  # [] the mean over the steps, computed before each step and without terms
    borrowed: bool = False
    change: Weights | None = None  # the result of `update`, if it is already known
    controls: Controls | None = None  # if they were asked for

    @property
    def weights(self) -> Weights:
        """A copy of the trained weights that may be kept."""
        assert self.held is not None, "a Start with only_update leaves no weights"
        if not self.borrowed:
            return self.held
        own = partial(torch.clone, memory_format=torch.contiguous_format)
        return Weights(*({name: own(value.detach()) for name, value in part.items()} for part in self.held))

    def update(self, start: Weights) -> Weights:
        """The trained weights minus the weights that training started from."""
        if self.change is not None:
            return self.change
        assert self.held is not None
        with torch.no_grad():
            change: Weights = subtract(self.held, start)
        return change


class TrainedBlock(NamedTuple):
    """The results of training a block of clients. A client's may be read after a `wait` for it."""

    weights: Sequence[Weights]  # of each client, in storage of its own; none if only updates are wanted
    change: Weights  # each tensor has a leading client axis
    steps: np.ndarray  # [clients] int64
    losses: Tensor  # [clients] float64
    sound: np.ndarray  # [clients] bool: whether the solver has found no number too large for the gate
    wait: Callable[[int | None], None] = lambda _: None  # returns once a client is trained; None: all are
    controls: Sequence[Controls] = ()  # of each client; the changes are rows of one tensor

    def single(self, position: int) -> Trained:
        """The result of the client at `position`."""
        self.wait(position)
        weights, change = self.weights[position] if self.weights else None, row(self.change, position)
        loss = self.losses[position].float()
        controls = self.controls[position] if self.controls else None
        return Trained(weights, int(self.steps[position]), loss, change=change, controls=controls)

    def finished(self) -> TrainedBlock:
        """The results of all clients."""
        self.wait(None)
        return self


class Solver(ABC):
    """Trains a client on its own samples."""

    format: str = "float32"  # the number format that clients train in, unless their setting names another

    @property
    @abstractmethod
    def batching(self) -> Batching:
        """How samples are divided into mini-batches."""

    @abstractmethod
    def rate(self, round: int) -> float:
        """The learning rate in a round, counted from 0."""

    def reach(self, round: int, steps: int) -> float:
        """How far so many steps with a constant gradient of 1 go."""
        return self.rate(round) * steps

    @abstractmethod
    def train(
        self,
        task: Task,
        start: Weights,
        data: Data,
        context: Context,
        terms: tuple[Term, ...] = (),
        shift: Mapping[str, Tensor] | None = None,
        pace: float = 1.0,
    ) -> Trained:
        """Train one client on its scheduled mini-batches, at `pace` times the learning rate."""

    def losses(
        self, task: Task, weights: Sequence[Weights], data: Sequence[Data], threads: int = 1
    ) -> Tensor:
        """[clients] float64: the mean loss of each client's model over all of its samples."""
        with torch.no_grad():
            sums = [task.losses(w, *own.all).double().sum() / own.count for w, own in zip(weights, data)]
        return torch.stack(sums).cpu()

    def prepare(self, task: Task) -> None:  # noqa: B027
        """Load what it takes to train this model, or compile it, before a round is timed."""

    def fits(self, task: Task, terms: tuple[Term, ...]) -> bool:
        """Whether `train_block` supports this model with these terms."""
        return False

    def train_block(
        self,
        task: Task,
        starts: Sequence[Start],
        block: Block,
        keys: Sequence[Key],
        round: int,
        threads: int,
        settings: Sequence[Setting] = (),
    ) -> TrainedBlock:
        """Train several clients at once, with the same bits as `train`; called only if `fits` is True.

        All clients have the same terms and model. A single start applies to all of them. `keys` holds a key
        for each client, `context.key.fold("noise")`, for all randomness except the order of its samples.
        `settings` holds their settings; it is empty if they have none.
        """
        raise NotImplementedError


Request = Start | ComputeLoss | ComputeFisher
Answer = Trained | Tensor | Flat  # to each of them
Course = Generator[Request, Any, tuple[Memory, Reply]]  # the generator of one client's update


class Training(Method):
    """A method whose clients train. By default they train the model that was sent and reply with its update.

    A subclass adds its fields, among them `local`, and its server functions. If its clients do more, it
    overrides `client_training`; if they do something entirely different, `client_update`.
    """

    local: Solver
    terms: tuple[Term, ...] = ()  # added to the loss

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        check_training(self.local, self.terms, task)

    def dispatch(self, task: Task, state: Any, cohort: Cohort, moment: Moment) -> Any:
        """See `Method`. Sends the field `model` of the state."""
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
        """One client's work: yields how training starts, receives the result, returns memory and reply."""
        trained = yield Start(message.model, self.terms, only_update=True)
        payload = ModelUpdate(trained.update(message.model))
        return memory, Reply(payload, data.weight, {"train_loss": trained.loss})

    def client_update(
        self, task: Task, memory: Memory, message: Any, data: Data, context: Context
    ) -> tuple[Memory, Reply]:
        """See `Method`."""
        course = self.client_training(task, memory, message, data, context)
        return self.trained_alone(task, course, data, context)

    def trained_alone(
        self, task: Task, course: Course, data: Data, context: Context, asked: Request | None = None
    ) -> tuple[Memory, Reply]:
        """Finish one client's work on its own: from the beginning, or from a request already yielded."""
        try:
            asked = next(course) if asked is None else asked
            while True:
                asked = course.send(self._answer(task, data, context, asked))
        except StopIteration as end:
            answer: tuple[Memory, Reply] = end.value
            return answer

    def _answer(self, task: Task, data: Data, context: Context, asked: Request) -> Answer:
        if isinstance(asked, ComputeLoss):
            return self.local.losses(task, [asked.weights], [data])[0]
        if isinstance(asked, ComputeFisher):
            return fisher_diagonal(task, asked.weights, *data.all)
        own, samples = asked.task or task, asked.data or data
        trained = self.local.train(
            own, asked.weights, samples, context, asked.terms, asked.whole_shift, asked.pace
        )
        if not asked.controls:
            return trained
        assert asked.shift is not None
        assert asked.less is not None
        reach = asked.pace * self.local.reach(context.round, trained.steps)
        change = trained.update(asked.weights).params
        controls = next_controls(change, asked.shift, asked.less, reach)
        return replace(trained, controls=controls)


def check_training(local: Solver, terms: Sequence[Term], task: Task) -> None:
    """Raise `SpecError` if clients cannot train this task with these terms."""
    for term in terms:
        term.check(task)


def solver_of(method: Method) -> Solver | None:
    """The solver with which clients train; None if they do not."""
    client = method.client_method
    return client.local if isinstance(client, Training) else None


def in_courses(method: Method) -> bool:
    """Whether clients run `client_training`, and so can be paused where training starts."""
    return isinstance(method, Training) and not overridden(method, Training, "client_update")
