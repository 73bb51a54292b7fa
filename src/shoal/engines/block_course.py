"""One course that does the work of all clients of a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from shoal.core.client import ClientSide
from shoal.core.data import Block
from shoal.core.engine import Memory
from shoal.core.key import ClientKeys
from shoal.core.training import ComputeLoss, Course, Request, Start, Training
from shoal.core.tree import elementwise, owners
from shoal.core.types import Cohort, Context, PerClient, Reply, Tree, message_for
from shoal.engines.block_client import times_written, with_own_storage


class CourseEnd(NamedTuple):
    """The result of running a block."""

    memories: Sequence[Memory]  # each client's new memory, or the shared one of clients without memories
    reply: Reply  # all replies, stacked
    checked: tuple[Tree, ...]  # fields of the payload whose numbers the solver has checked


class _OfOne:
    """Stands for a value that differs between clients, which a course that serves all of them cannot use."""

    def __init__(self, what: str, **known: Any) -> None:
        self._what = what
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        raise TypeError(f"a client_training that serves blocks cannot ask for {name} of its {self._what}")


class BlockCourse(NamedTuple):
    """The course of a method whose `client_training` serves blocks: see `core.training.for_blocks`."""

    side: ClientSide
    cohort: Cohort
    block: Block
    context: Context  # of the exchange
    threads: int

    def run(self, message: Tree, memories: Sequence[Memory]) -> CourseEnd:
        """Run it with the message to all clients, and with each client's memory or the one they all share."""
        method = self.side.method.client_method
        assert isinstance(method, Training)
        held: Tree = PerClient([one.method for one in memories])
        held = held if self.side.remembers else memories[0].method
        data: Any = _OfOne("data", weight=self.block.weight)
        setting: Any = _OfOne("setting")
        key: Any = _OfOne("key")
        context = self.context._replace(setting=setting, key=key)
        course: Course = method.client_training(self.side.task, held, message, data, context)
        checked: list[Tree] = []
        written = 0
        try:
            asked = next(course)
            while True:
                answer = self._answer(method, asked, checked)
                written = times_written(owners(tuple(checked)))
                asked = course.send(answer)
        except StopIteration as end:
            kept, reply = end.value
        if times_written(owners(tuple(checked))) != written:  # by the method, so they must be checked again
            checked = []
        fields = reply.payload if isinstance(reply.payload, tuple) else ()
        known = tuple(field for field in fields if any(field is one for one in checked))
        if not self.side.remembers:
            return CourseEnd(memories, reply, known)
        if not isinstance(kept, PerClient):
            name, found = type(method).__name__, type(kept).__name__
            raise TypeError(f"{name}.client_training serves blocks: its memory is a PerClient, not a {found}")
        own = [elementwise(with_own_storage, one) for one in kept.rows]
        new = [Memory(one, old.codec) for one, old in zip(own, memories, strict=True)]
        return CourseEnd(new, reply, known)

    def _answer(self, method: Training, asked: Request, checked: list[Tree]) -> Any:
        """What the solver returns for all clients; adds the trees that it has checked to `checked`."""
        task, clients = self.side.task, range(len(self.cohort.ids))
        if isinstance(asked, ComputeLoss):
            models = [message_for(asked, i).weights for i in clients]
            return method.local.losses(task, models, self.block.samples(task.classes), self.threads)
        if not isinstance(asked, Start) or not self._usual(method, asked):
            name = type(method).__name__
            raise TypeError(
                f"{name}.client_training serves blocks: it can ask for losses, and for updates of the task's "
                "model by its own samples, with terms that the kernels know"
            )
        alike = not any(isinstance(field, PerClient) for field in asked)
        starts = [asked] if alike else [message_for(asked, i) for i in clients]
        settings = [self.cohort.setting(i) for i in clients] if self.cohort.settings else ()
        keys, round = ClientKeys(self.context.key, self.cohort.ids, "noise"), self.context.round
        done = method.local.train_block(task, starts, self.block, keys, round, self.threads, settings)
        trained = done.together()
        if done.sound.all():
            checked += [trained.change, () if trained.controls is None else trained.controls.change]
        return trained

    def _usual(self, method: Training, asked: Start) -> bool:
        """Whether it trains the task's model on the clients' samples, with terms that the kernels know."""
        own = asked.task is None and asked.data is None and asked.only_update
        return own and method.local.fits(self.side.task, message_for(asked, 0).terms)
