"""One client of a block: its work up to the start of training, and from there on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from shoal.core.client import ClientSide, Visit
from shoal.core.codec import Packet
from shoal.core.data import Data
from shoal.core.engine import Memory, Verb
from shoal.core.trained import Trained
from shoal.core.training import Answer, Course, Request, Start, Training
from shoal.core.tree import elementwise, owners
from shoal.core.types import Context, Reply, Tree


class Waiting(NamedTuple):
    """A client that is paused at the start of its training, or at a request to compute on its samples."""

    client: BlockClient
    data: Data
    course: Course
    asked: Request


class SolverAnswer(NamedTuple):
    """The answer to a waiting client's request."""

    value: Answer
    sound: bool = False  # whether the solver has checked the numbers of the update


class BlockClient(NamedTuple):
    """One client of a block."""

    side: ClientSide
    verb: Verb
    id: int
    memory: Memory
    context: Context

    def begin(self, message: Tree, scheduled: Data | None) -> Waiting | Visit:
        """Run the client up to the first training that the kernels can do, or to the end.

        Without `scheduled` the client looks up its samples itself.
        """

        def work() -> Waiting | Visit:
            method, task = self.side.method.client_method, self.side.task
            assert isinstance(method, Training)
            data = self.side.training_data(self.id, self.context, scheduled)
            course = method.client_training(task, self.memory.method, message, data, self.context)
            return self._advance(course, data, lambda: next(course))

        return self.side.guarded(self.verb, self.id, self.memory, self.context, work)

    def resume(self, waiting: Waiting, answer: SolverAnswer) -> Waiting | Visit:
        """Continue the client with the answer to its request.

        Numbers that the solver has checked are not checked again, unless the method writes to them.
        """
        value = answer.value
        checked: list[Tensor] = []
        if answer.sound and isinstance(value, Trained):
            checked = owners((value.change, () if value.controls is None else value.controls.change))
        written = times_written(checked)

        def work() -> Waiting | Visit:
            course = waiting.course
            return self._advance(course, waiting.data, lambda: course.send(value))

        done = self.side.guarded(self.verb, self.id, self.memory, self.context, work)
        if not isinstance(done, Visit) or done.answer is None or times_written(checked) != written:
            return done
        payload = done.answer.content.payload
        fields = payload if isinstance(payload, tuple) else ()
        return done._replace(checked=tuple(field for field in fields if _within(field, checked)))

    def _advance(self, course: Course, data: Data, step: Callable[[], Request]) -> Waiting | Visit:
        method, task = self.side.method.client_method, self.side.task
        assert isinstance(method, Training)
        try:
            asked = step()
        except StopIteration as end:
            return self._finished(*end.value)
        if not isinstance(asked, Start) or method.local.fits(asked.task or task, asked.terms):
            return Waiting(self, data, course, asked)
        return self._finished(*method.trained_alone(task, course, data, self.context, asked))

    def _finished(self, kept: Tree, reply: Reply) -> Visit:
        kept = elementwise(with_own_storage, kept)
        if self.verb == "train":
            return Visit(Memory(kept, self.memory.codec), Packet(reply))
        return Visit(*self.side.answer(self.id, kept, reply, self.memory, self.context))


def times_written(checked: Sequence[Tensor]) -> int:
    """How often torch has written to the tensors in place."""
    return sum(leaf._version for leaf in checked)


def _within(tree: Tree, checked: Sequence[Tensor]) -> bool:
    """Whether a tree lies entirely within the checked tensors: some layers of a model, or all of it."""
    return all(
        leaf.is_contiguous() and any(leaf.dtype is whole.dtype and _covers(whole, leaf) for whole in checked)
        for leaf in owners(tree)
    )


def _covers(whole: Tensor, part: Tensor) -> bool:
    begin, first = whole.data_ptr(), part.data_ptr()
    return begin <= first and first + part.nbytes <= begin + whole.nbytes


def with_own_storage(leaf: Any) -> Any:
    """A tensor with its own storage: a view would keep the whole block in memory."""
    if isinstance(leaf, Tensor) and leaf.untyped_storage().nbytes() > leaf.numel() * leaf.element_size():
        return leaf.clone()
    return leaf
