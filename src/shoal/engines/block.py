"""Blocks of clients whose training is one call of the solver's kernels.

A client's work is that of one client, with its own key and setting; only where it hands over how its
training starts do clients wait for one another. A kernel's bits do not depend on a client's neighbours, so
a block has the bits of one client after another. What the kernels do not train is trained in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
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
from shoal.core.training import Course, Start, Trained, Training, in_courses, is_plain
from shoal.core.tree import elementwise, row
from shoal.core.types import Cohort, Context, ModelUpdate, PerClient, Reply, Tree
from shoal.engines.memory import MemoryStore
from shoal.engines.serial import Serial, delivered

LARGEST_BLOCK = 256  # clients
LARGEST_STACK = 2**24  # parameters of all clients of a block together
CHUNKS = 16  # of a block: more overlap better, and cost more calls

Mail = Sequence[tuple[Packet, Tree, int]]


def trains_in_blocks(side: ClientSide) -> bool:
    """Whether blocks of clients are trained faster than one client after another."""
    method = side.method
    return isinstance(method, Training) and in_courses(method) and method.local.fits(side.task, method.terms)


class Blocks:
    """Visits clients block by block."""

    def __init__(self, side: ClientSide, store: MemoryStore, threads: int) -> None:
        self._side, self._store, self._threads = side, store, threads
        self._serial = Serial(side, store)
        self._fits = trains_in_blocks(side)
        # nothing is to be done for each client but to train it
        self._plain = (
            is_plain(side.method)
            and not overridden(side.method, Method, "upload")
            and side.codec.transparent
            and side.privacy is None
            and not side.remembers
            and not side.forgiving  # where one client's error must not be everybody's
        )
        self._length = 0  # of a plain reply's packet, which depends on the model alone; 0: not known yet
        parameters = sum(shape.numel() for shape in side.task.shapes.values())
        self._size = max(1, min(LARGEST_BLOCK, LARGEST_STACK // parameters))

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""
        if work.verb not in TRAINING or not self._fits:
            yield from self._serial.exchange(work, cohort, message, key)
            return
        outbox = Outbox(self._side.codec, cohort, message, key)
        everyone = range(len(cohort.ids))
        for first in range(0, len(everyone), self._size):
            positions = list(everyone[first : first + self._size])
            members, mail = cohort.take(positions), outbox.several(positions)
            at_once = self._trained_at_once(work, members, mail, key) if self._plain else None
            if at_once is not None:
                yield at_once
            else:
                yield from self._trained_together(work, members, mail, key)

    def close(self) -> None:
        """See `Engine`."""
        if "_pool" in self.__dict__:
            self._pool.shutdown(cancel_futures=True)

    # ---- clients that only train

    def _trained_at_once(self, work: Work, cohort: Cohort, mail: Mail, key: Key) -> Delivery | None:
        """The replies of the block, stacked; None where one of its clients needs to be looked at."""
        started, side = time.perf_counter(), self._side
        method, sent = side.method, [message for _, message, _ in mail]
        assert isinstance(method, Training)
        words = key.fold_many("client", np.array(cohort.ids), "batches")
        block = side.data.block(cohort.ids, method.batching, words)
        if work.verb != "update" or not block.counts.all():
            return None
        alike = all(message is sent[0] for message in sent)
        starts = [Start(message.model, method.terms) for message in (sent[:1] if alike else sent)]
        with stage(work.verb, cohort.ids[0], work.round):
            keys = ClientKeys(key, cohort.ids, "noise")
            trained = method.local.train_block(side.task, starts, block, keys, work.round, self._threads)
        weight = torch.from_numpy(block.counts).double()
        reply = Reply(ModelUpdate(trained.change), weight, {"train_loss": trained.losses})
        if not self._length:
            self._length = Packet(row(reply, 0)).nbytes
        down, up = sum(length for _, _, length in mail), len(mail) * self._length
        seconds = time.perf_counter() - started
        message = sent[0] if alike else _differing(sent)
        return Delivery(
            cohort.ids, work.version, message, reply, "", down, up, seconds, stacked=True, sound=trained.sound
        )

    # ---- clients that do something of their own before and after

    def _trained_together(self, work: Work, cohort: Cohort, mail: Mail, key: Key) -> Iterator[Delivery]:
        """The replies of the block, client by client: they wait for one another where training starts.

        Threads train some of them, while this one prepares the next and takes in what is trained.
        """
        size = -(-len(cohort.ids) // CHUNKS)
        positions = range(len(cohort.ids))
        chunks = []
        for first in positions[::size]:
            chunk = _Chunk(list(positions[first : first + size]), time.perf_counter())
            for position in chunk.positions:
                context = self._context(work, cohort, position, key)
                client, mailed = cohort.ids[position], mail[position][1]
                memory = self._store.read(client, work.accepted.get(client)) or self._side.fresh
                one = _Client(self._side, work.verb, client, memory, context)
                chunk.sort(position, one.begin(mailed))
            chunk.training = self._start(chunk, work.round)
            chunks.append(chunk)
        for chunk in chunks:
            while chunk.waiting:
                trained, gone = chunk.training(), chunk.waiting
                chunk.waiting = []
                for one_of_them, result in zip(gone, trained, strict=True):
                    chunk.sort(one_of_them.position, one_of_them.client.go_on(one_of_them, result))
                chunk.training = self._start(chunk, work.round)
            share = (time.perf_counter() - chunk.started) / len(chunk.positions)
            for position in chunk.positions:
                _, sent, down = mail[position]
                visit, begun = chunk.visits.pop(position), time.perf_counter() - share
                yield delivered(self._side, self._store, work, cohort.ids[position], sent, visit, down, begun)

    def _context(self, work: Work, cohort: Cohort, position: int, key: Key) -> Context:
        setting, own = cohort.setting(position), key.fold("client", cohort.ids[position])
        return Context(work.round, work.leg, setting, own)

    def _start(self, chunk: _Chunk, round: int) -> Callable[[], list[Trained]]:
        """Begin to train those who wait; returns what waits for it."""
        train = partial(_train, self._side, chunk.waiting, round)
        return train if self._threads == 1 or not chunk.waiting else self._pool.submit(train).result

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._threads, thread_name_prefix="shoal-block")


class _Chunk:
    """Some clients of a block, who are trained in one call."""

    def __init__(self, positions: list[int], started: float) -> None:
        self.positions, self.started = positions, started
        self.waiting: list[_Waiting] = []
        self.visits: dict[int, Visit] = {}
        self.training: Callable[[], list[Trained]] = list

    def sort(self, position: int, found: _Waiting | Visit) -> None:
        """Whether a client is done, or has come as far as its training."""
        if isinstance(found, Visit):
            self.visits[position] = found
        else:
            self.waiting.append(found._replace(position=position))


def _train(side: ClientSide, waiting: Sequence[_Waiting], round: int) -> list[Trained]:
    """Those of equal terms in one call."""
    method, trained = side.method, []
    assert isinstance(method, Training)
    for _, equal in groupby(waiting, lambda one: id(one.start.terms)):
        some = list(equal)
        starts, block = [one.start for one in some], Block.of([one.data for one in some])
        keys = [one.client.context.key.fold("noise") for one in some]
        done = method.local.train_block(side.task, starts, block, keys, round, 1)
        trained += [done.single(i) for i in range(len(some))]
    return trained


class _Waiting(NamedTuple):
    """A client that has come as far as the start of its training."""

    client: _Client
    data: Data
    course: Course
    start: Start
    position: int = 0  # in its block


class _Client(NamedTuple):
    """One client of a block, with all that is its own."""

    side: ClientSide
    verb: Verb
    id: int
    memory: Memory
    context: Context

    def begin(self, message: Tree) -> _Waiting | Visit:
        """Work up to the first training that the kernels can do, or to the end."""

        def work() -> _Waiting | Visit:
            method, task = self.side.method, self.side.task
            assert isinstance(method, Training)
            data = self.side.training_data(self.id, self.context)
            course = method.client_training(task, self.memory.method, message, data, self.context)
            return self._until_training(course, data, lambda: next(course))

        return self.side.guarded(self.verb, self.id, self.memory, self.context, work)

    def go_on(self, waiting: _Waiting, trained: Trained) -> _Waiting | Visit:
        """Work on with what was trained."""

        def work() -> _Waiting | Visit:
            course = waiting.course
            return self._until_training(course, waiting.data, lambda: course.send(trained))

        return self.side.guarded(self.verb, self.id, self.memory, self.context, work)

    def _until_training(self, course: Course, data: Data, move: Callable[[], Start]) -> _Waiting | Visit:
        method, task = self.side.method, self.side.task
        assert isinstance(method, Training)
        try:
            start = move()
        except StopIteration as end:
            return self._ended(*end.value)
        if method.local.fits(task, start.terms):
            return _Waiting(self, data, course, start)
        return self._ended(*method.trained_alone(task, course, data, self.context, start))

    def _ended(self, kept: Tree, reply: Reply) -> Visit:
        kept = elementwise(_alone, kept)
        if self.verb == "train":
            return Visit(Memory(kept, self.memory.codec), Packet(reply))
        return Visit(*self.side.answer(self.id, kept, reply, self.memory, self.context))


def _alone(leaf: Any) -> Any:
    """A tensor without its neighbours: a view of a block would keep the whole block in memory."""
    if isinstance(leaf, Tensor) and leaf.untyped_storage().nbytes() > leaf.numel() * leaf.element_size():
        return leaf.clone()
    return leaf


def _differing(sent: Sequence[Tree]) -> Tree:
    """The block's messages as one, with fields that differ by client as `PerClient`."""
    columns = zip(*sent, strict=True)
    return type(sent[0])(*(c[0] if all(f is c[0] for f in c) else PerClient(c) for c in columns))
