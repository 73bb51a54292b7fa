"""Blocks of clients that are trained in one kernel call.

Every client does its own work, with its own key and setting; only where training starts do the clients of a
block wait for each other, and each goes on as soon as it is trained, while threads train the others. The bits
of a kernel do not depend on the other clients of the block, so a block gives the same bits as one client
after another. Clients that the kernels cannot train are trained one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.client import ClientSide, Visit
from shoal.core.codec import Packet
from shoal.core.data import Block, Data
from shoal.core.engine import TRAINING, Delivery, Memory, Verb, Work, stage
from shoal.core.key import ClientKeys, Key
from shoal.core.method import Method, overridden
from shoal.core.outbox import Outbox
from shoal.core.training import ComputeLoss, Course, Request, Start, Trained, Training, in_courses, is_plain
from shoal.core.tree import elementwise, owners, row
from shoal.core.types import Cohort, Context, ModelUpdate, PerClient, Reply, Tree, Weights
from shoal.engines.client_memory import MemoryStore
from shoal.engines.serial import Serial, delivered

LARGEST_BLOCK = 256  # clients
LARGEST_STACK = 2**24  # parameters of all clients of a block

Outgoing = Sequence[tuple[Packet, Tree, int]]


def trains_in_blocks(side: ClientSide) -> bool:
    """Whether the compiled kernels can train blocks of clients for this method, model and solver."""
    method = side.method.client_method
    return isinstance(method, Training) and in_courses(method) and method.local.fits(side.task, method.terms)


class Blocks:
    """Runs clients block by block."""

    def __init__(self, side: ClientSide, store: MemoryStore, threads: int) -> None:
        self._side, self._store, self._threads = side, store, threads
        self._serial = Serial(side, store)
        self._fits = trains_in_blocks(side)
        # clients do nothing but train: no client needs individual treatment
        self._plain = (
            is_plain(side.method.client_method)
            and not overridden(side.method.client_method, Method, "upload")
            and side.codec.transparent
            and side.privacy is None
            and not side.remembers
            and not side.forgiving  # if errors are forgiven, they must be traced to one client
        )
        self._length = 0  # of a plain reply's packet, which depends only on the model; 0: not known yet
        parameters = sum(shape.numel() for shape in side.task.shapes.values())
        self._size = max(1, min(LARGEST_BLOCK, LARGEST_STACK // parameters))

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""
        if work.verb not in TRAINING or not self._fits:
            yield from self._serial.exchange(work, cohort, message, key)
            return
        outbox = Outbox(self._side.codec, cohort, message, key)
        all_positions = range(len(cohort.ids))
        for first in range(0, len(all_positions), self._size):
            positions = list(all_positions[first : first + self._size])
            members, outgoing = cohort.take(positions), outbox.several(positions)
            at_once = self._trained_at_once(work, members, outgoing, key) if self._plain else None
            if at_once is not None:
                yield at_once
            else:
                yield from self._trained_together(work, members, outgoing, key)

    def close(self) -> None:
        """Nothing to end."""

    # ---- clients that only train

    def _trained_at_once(self, work: Work, cohort: Cohort, outgoing: Outgoing, key: Key) -> Delivery | None:
        """The stacked replies of the block; None if one of its clients needs individual treatment."""
        side = self._side
        method, sent = side.method.client_method, [message for _, message, _ in outgoing]
        assert isinstance(method, Training)
        words = key.fold_many("client", np.array(cohort.ids), "batches")
        block = side.data.block(cohort.ids, method.batching, words)
        if work.verb != "update" or not block.counts.all():
            return None
        alike = all(message is sent[0] for message in sent)
        sources = sent[:1] if alike else sent
        starts = [Start(message.model, method.terms, only_update=True) for message in sources]
        with stage(work.verb, cohort.ids[0], work.round):
            keys = ClientKeys(key, cohort.ids, "noise")
            settings = [cohort.setting(i) for i in range(len(cohort.ids))] if cohort.settings else ()
            trained = method.local.train_block(
                side.task, starts, block, keys, work.round, self._threads, settings
            ).finished()
        weight = torch.from_numpy(block.counts).double()
        reply = Reply(
            ModelUpdate(trained.change), weight, {"train_loss": torch.from_numpy(trained.losses).float()}
        )
        if not self._length:
            self._length = Packet(row(reply, 0)).nbytes
        down, up = sum(length for _, _, length in outgoing), len(outgoing) * self._length
        message = sent[0] if alike else _merged(sent)
        return Delivery(
            cohort.ids,
            work.version,
            message,
            reply,
            "",
            down,
            up,
            stacked=True,
            checked=trained.change if trained.sound.all() else None,
        )

    # ---- clients that do more than train

    def _trained_together(
        self, work: Work, cohort: Cohort, outgoing: Outgoing, key: Key
    ) -> Iterator[Delivery]:
        """The replies of the block, one per client: clients wait for each other where training starts.

        Each is delivered as soon as it is there, while others are still in training.
        """
        found: list[_Waiting | Visit] = []
        keys = [key.fold("client", client) for client in cohort.ids]
        held = self._scheduled(cohort.ids, keys)
        for position, client in enumerate(cohort.ids):
            context = Context(work.round, work.leg, cohort.setting(position), keys[position])
            memory = self._store.read(client, work.accepted.get(client)) or self._side.fresh
            visited = _Client(self._side, work.verb, client, memory, context)
            found.append(visited.begin(outgoing[position][1], held[position]))
        ahead = 0  # how many are delivered
        for _ in self._resumed(found, work.round):
            while ahead < len(found) and isinstance(visit := found[ahead], Visit):
                _, sent, down = outgoing[ahead]
                yield delivered(self._side, self._store, work, cohort.ids[ahead], sent, visit, down)
                ahead += 1

    def _resumed(self, found: list[_Waiting | Visit], round: int) -> Iterator[None]:
        """Give waiting clients what they ask for, until none waits any more; pauses after each of them."""
        yield
        while paused := [(i, one) for i, one in enumerate(found) if isinstance(one, _Waiting)]:
            answers = self._answers([one for _, one in paused], round)
            for (i, one), answer in zip(paused, answers, strict=True):
                found[i] = one.client.resume(one, answer)
                yield

    def _scheduled(self, clients: Sequence[int], keys: Sequence[Key]) -> Sequence[Data | None]:
        """The samples of all clients in one call, or nothing: an error must be traced to its client."""
        if not self._side.forgiving:
            with suppress(Exception):  # the client whose samples it is meets it again
                return self._side.scheduled(clients, keys)
        return [None] * len(clients)

    def _answers(self, waiting: Sequence[_Waiting], round: int) -> Iterator[_Answer]:
        """Train waiting clients, or compute losses: those with the same terms and model in one call."""
        method, task = self._side.method.client_method, self._side.task
        assert isinstance(method, Training)
        for _, equal in groupby(waiting, lambda one: _kind(one.asked)):
            some = list(equal)
            asked, data = [one.asked for one in some], [one.data for one in some]
            starts = [start for start in asked if isinstance(start, Start)]
            if not starts:
                judged = [judge.weights for judge in asked]
                yield from map(_Answer, method.local.losses(task, judged, data, self._threads))
                continue
            keys, model = [one.client.context.key.fold("noise") for one in some], starts[0].task or task
            held = [start.data or own for start, own in zip(starts, data, strict=True)]
            settings, block = [one.client.context.setting for one in some], Block.of(held)
            done = method.local.train_block(model, starts, block, keys, round, self._threads, settings)
            for i in range(len(some)):
                yield _Answer(done.single(i), bool(done.sound[i]))


class _Waiting(NamedTuple):
    """A client that has reached the start of its training, or asks for a loss."""

    client: _Client
    data: Data
    course: Course
    asked: Request


def _kind(asked: Request) -> tuple[int, int]:
    """Equal for what can be answered in one call."""
    return (id(asked.terms), id(asked.task)) if isinstance(asked, Start) else (0, 0)


class _Answer(NamedTuple):
    """What a waiting client gets."""

    value: Trained | Tensor
    sound: bool = False  # whether the solver has checked the change of its weights


class _Client(NamedTuple):
    """One client of a block."""

    side: ClientSide
    verb: Verb
    id: int
    memory: Memory
    context: Context

    def begin(self, message: Tree, scheduled: Data | None) -> _Waiting | Visit:
        """Run the client up to the first training that the kernels can do, or to the end.

        Without `scheduled` the client looks up its samples itself.
        """

        def work() -> _Waiting | Visit:
            method, task = self.side.method.client_method, self.side.task
            assert isinstance(method, Training)
            data = self.side.training_data(self.id, self.context, scheduled)
            course = method.client_training(task, self.memory.method, message, data, self.context)
            return self._advance(course, data, lambda: next(course))

        return self.side.guarded(self.verb, self.id, self.memory, self.context, work)

    def resume(self, waiting: _Waiting, answer: _Answer) -> _Waiting | Visit:
        """Continue the client with what it has asked for.

        What the solver has checked need not be looked at again, unless the method writes to it.
        """
        value = answer.value
        checked = value.change if answer.sound and isinstance(value, Trained) else None
        written = _times_written(checked)

        def work() -> _Waiting | Visit:
            course = waiting.course
            return self._advance(course, waiting.data, lambda: course.send(value))

        done = self.side.guarded(self.verb, self.id, self.memory, self.context, work)
        if isinstance(done, Visit) and _times_written(checked) == written:
            return done._replace(checked=checked)
        return done

    def _advance(self, course: Course, data: Data, step: Callable[[], Request]) -> _Waiting | Visit:
        method, task = self.side.method.client_method, self.side.task
        assert isinstance(method, Training)
        try:
            asked = step()
        except StopIteration as end:
            return self._finished(*end.value)
        if isinstance(asked, ComputeLoss) or method.local.fits(asked.task or task, asked.terms):
            return _Waiting(self, data, course, asked)
        return self._finished(*method.trained_alone(task, course, data, self.context, asked))

    def _finished(self, kept: Tree, reply: Reply) -> Visit:
        kept = elementwise(_with_own_storage, kept)
        if self.verb == "train":
            return Visit(Memory(kept, self.memory.codec), Packet(reply))
        return Visit(*self.side.answer(self.id, kept, reply, self.memory, self.context))


def _times_written(weights: Weights | None) -> int:
    """How often torch has written to the tensors."""
    return 0 if weights is None else sum(leaf._version for part in weights for leaf in owners(part))


def _with_own_storage(leaf: Any) -> Any:
    """A tensor with its own storage: a view would keep the whole block in memory."""
    if isinstance(leaf, Tensor) and leaf.untyped_storage().nbytes() > leaf.numel() * leaf.element_size():
        return leaf.clone()
    return leaf


def _merged(sent: Sequence[Tree]) -> Tree:
    """The messages of a block as one message; fields that differ between clients are `PerClient`."""
    columns = zip(*sent, strict=True)
    return type(sent[0])(*(c[0] if all(f is c[0] for f in c) else PerClient(c) for c in columns))
