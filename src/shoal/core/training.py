"""Methods whose clients train: the method says how training starts, the solver trains.

A client's work is written for a single client, as a generator that yields a `Start` and receives the trained
weights:

    trained = yield Start(message.model, terms)
    return memory, Reply(ModelUpdate(trained.update(message.model)), data.weight, {})

This lets an engine pause many clients at this point and train all of them in one kernel call, without the
method knowing about it. `ComputeLoss` and `ComputeFisher` request other computations in the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from shoal.core.control import next_controls
from shoal.core.data import Batching, Block, Data
from shoal.core.fisher import fisher_diagonal
from shoal.core.flat import Flat
from shoal.core.key import Key
from shoal.core.method import Axes, Method, overridden
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.trained import Trained, TrainedBlock
from shoal.core.tree import subtract
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

    It may also change the learning rate, and replace the model or the samples that the client trains on.
    """

    weights: Weights
    terms: tuple[Term, ...] = ()  # added to the loss
    shift: Mapping[str, Tensor] | None = None  # added to every gradient
    less: Mapping[str, Tensor] | None = None  # subtracted from the shift
    only_update: bool = False  # whether only the update is needed, not the trained weights themselves
    pace: float = 1.0  # a factor on the learning rate
    task: Task | None = None  # the model to train; None: the run's
    data: Data | None = None  # the samples and mini-batches; None: the client's own
    controls: bool = False  # whether to compute the control variate that replaces `less`

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
        """How far `steps` steps with a constant gradient of 1 move a weight."""
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
        """Load or compile what training this model needs, before a round is timed."""

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
        """Train several clients at once, bit for bit like `train`; called only if `fits` is True.

        All clients have the same terms and model. A single start applies to all of them. `keys` holds a key
        for each client, `context.key.fold("noise")`, for all its randomness except the order of its samples.
        `settings` holds the clients' settings; it is empty if they have none.
        """
        raise NotImplementedError


Request = Start | ComputeLoss | ComputeFisher
Answer = Trained | Tensor | Flat  # to each kind of request, in the same order
Course = Generator[Request, Any, tuple[Memory, Reply]]  # the generator of one client's update
Function = TypeVar("Function", bound=Callable[..., Any])


def for_blocks(client_training: Function) -> Function:
    """Mark a `client_training` that only passes values on, so that one call does the work of a block.

    Values that differ between clients are then `PerClient`: fields of the message, memories, control
    variates. Updates, losses, changes of control variates and `data.weight` have a leading client axis. Such
    a function trains the task's model with the method's terms on the client's own samples, and asks for
    updates instead of trained weights. It uses neither its setting nor its key, and of its data only
    `data.weight`.
    """
    client_training.for_blocks = True  # type: ignore[attr-defined]
    return client_training


def serves_blocks(method: Method) -> bool:
    """Whether one call of `client_training` does the work of a block of clients."""
    return in_courses(method) and getattr(type(method).client_training, "for_blocks", False)  # type: ignore[attr-defined]


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

    @for_blocks
    def client_training(
        self, task: Task, memory: Memory, message: Any, data: Data, context: Context
    ) -> Course:
        """One client's work: yields how training starts, receives the result, returns memory and reply.

        One call may also do the work of a whole block of clients: see `for_blocks`.
        """
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
