"""Blocks of clients that are trained in one kernel call.

Every client does its own work, with its own key and setting. The clients of a block wait for each other only
where training starts, and each continues as soon as it is trained, while threads train the others. What a
kernel computes for a client does not depend on the other clients of the block, so a block gives the same bits
as one client after another. Clients that the kernels cannot train are trained one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby

import numpy as np

from shoal.core.client import ClientSide, Visit
from shoal.core.codec import Packet
from shoal.core.data import Block, Data
from shoal.core.engine import TRAINING, Delivery, Memory, Stage, Work
from shoal.core.fisher import fisher_diagonals
from shoal.core.key import ClientKeys, Key
from shoal.core.method import Method, folds_blocks, overridden
from shoal.core.outbox import Outbox
from shoal.core.training import ComputeFisher, Request, Start, Training, in_courses, serves_blocks
from shoal.core.tree import example_row, rows_of
from shoal.core.types import Cohort, Context, PerClient, Tree
from shoal.engines.block_client import BlockClient, SolverAnswer, Waiting
from shoal.engines.block_course import BlockCourse
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
        # one call does the work of all clients, if none of them needs individual treatment
        self._as_one = (
            serves_blocks(side.method.client_method)
            and not overridden(side.method.client_method, Method, "upload")
            and side.codec.transparent
            and side.privacy is None
            and not side.tolerates_errors  # if errors are forgiven, they must be traced to one client
        )
        self._own_replies = self._as_one and overridden(
            side.method.client_method, Training, "client_training"
        )
        self._length = 0  # of a standard reply's packet, which depends only on the model; 0: not known yet
        # replies are stacked if the method folds whole blocks and replies need no decoding before that
        self._stacks = (
            folds_blocks(side.method)
            and not overridden(side.method, Method, "received")
            and side.codec.transparent
        )
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
            alike = self._as_one and work.verb == "update"
            one = self._trained_as_one(work, members, outgoing, key) if alike else None
            if one is not None:
                yield one
            else:
                yield from self._trained_together(work, members, outgoing, key)

    def close(self) -> None:
        """Nothing to release."""

    # ---- one course for all clients

    def _trained_as_one(self, work: Work, cohort: Cohort, outgoing: Outgoing, key: Key) -> Delivery | None:
        """The stacked replies of the block; None if one of its clients needs individual treatment."""
        side, sent = self._side, [message for _, message, _ in outgoing]
        words = key.fold_many("client", np.array(cohort.ids), "batches")
        method = side.method.client_method
        assert isinstance(method, Training)
        block = side.data.block(cohort.ids, method.batching, words)
        if not block.counts.all():
            return None
        memories = [self._memory(work, client) for client in cohort.ids] if side.remembers else [side.fresh]
        message, context = _merged(sent), Context(work.round, work.leg, {}, key)
        with Stage(work.verb, cohort.ids[0], work.round):
            ended = BlockCourse(side, cohort, block, context, self._threads).run(message, memories)
        if side.remembers:
            for client, memory in zip(cohort.ids, ended.memories, strict=True):
                self._store.write(client, work.accepted.get(client), work.version, memory)
        if self._own_replies or not self._length:
            self._length = Packet(example_row(ended.reply)).nbytes  # replies of a block have one structure
        down, up = sum(length for _, _, length in outgoing), len(outgoing) * self._length
        return Delivery(
            cohort.ids, work.version, message, ended.reply, "", down, up, stacked=True, checked=ended.checked
        )

    def _memory(self, work: Work, client: int) -> Memory:
        return self._store.read(client, work.accepted.get(client)) or self._side.fresh

    # ---- a course for each client

    def _trained_together(
        self, work: Work, cohort: Cohort, outgoing: Outgoing, key: Key
    ) -> Iterator[Delivery]:
        """The replies of the block: clients wait for each other where training starts.

        Replies that are side by side in memory are delivered together. Others are delivered one by one, as
        soon as they are ready, while the remaining clients are still being trained.
        """
        found: list[Waiting | Visit] = []
        held, clients_key = self._scheduled(cohort.ids, key), key.fold("client")
        for position, client in enumerate(cohort.ids):
            context = Context(work.round, work.leg, cohort.setting(position), clients_key.fold(client))
            visited = BlockClient(self._side, work.verb, client, self._memory(work, client), context)
            found.append(visited.begin(outgoing[position][1], held[position]))
        ahead, together = 0, self._stacks and work.verb == "update"
        for _ in self._resumed(found, work.round, key, together):
            while not together and ahead < len(found) and isinstance(visit := found[ahead], Visit):
                yield self._delivered(work, cohort.ids[ahead], outgoing[ahead], visit)
                ahead += 1
        visits = [visit for visit in found[ahead:] if isinstance(visit, Visit)]
        at_once = self._side_by_side(work, cohort, outgoing, visits) if together else None
        if at_once is not None:
            yield at_once
        else:
            yield from map(partial(self._delivered, work), cohort.ids[ahead:], outgoing[ahead:], visits)

    def _delivered(
        self, work: Work, client: int, outgoing: tuple[Packet, Tree, int], visit: Visit
    ) -> Delivery:
        return delivered(self._side, self._store, work, client, outgoing[1], visit, outgoing[2])

    def _side_by_side(
        self, work: Work, cohort: Cohort, outgoing: Outgoing, visits: Sequence[Visit]
    ) -> Delivery | None:
        """The stacked replies of all clients; None if one is missing, or not side by side in memory."""
        replies = [visit.answer.content for visit in visits if visit.answer is not None]
        if len(replies) < len(visits):
            return None
        reply = rows_of(replies)
        if reply is None:
            self._stacks = False  # they will not be in the next round either
            return None
        if self._side.remembers:
            for client, visit in zip(cohort.ids, visits, strict=True):
                self._store.write(client, work.accepted.get(client), work.version, visit.memory)
        known = [{id(tree) for tree in visit.checked} for visit in visits]
        payloads = zip(*(reply.payload for reply in replies), strict=True)
        checked = tuple(
            field
            for field, singles in zip(reply.payload, payloads, strict=True)
            if all(id(single) in ids for single, ids in zip(singles, known, strict=True))
        )
        sent, down = [message for _, message, _ in outgoing], sum(length for _, _, length in outgoing)
        up = len(visits) * Packet(replies[0]).nbytes
        return Delivery(
            cohort.ids, work.version, _merged(sent), reply, "", down, up, stacked=True, checked=checked
        )

    def _resumed(self, found: list[Waiting | Visit], round: int, key: Key, together: bool) -> Iterator[None]:
        """Answer the requests of waiting clients until none is left; pauses after each client.

        Clients that are delivered together continue when all are trained: between two trainings, their code
        would find a cold cache.
        """
        yield
        while paused := [(i, one) for i, one in enumerate(found) if isinstance(one, Waiting)]:
            answers = self._answers([one for _, one in paused], round, key, together)
            for (i, one), answer in zip(paused, answers, strict=True):
                found[i] = one.client.resume(one, answer)
                yield

    def _scheduled(self, clients: Sequence[int], key: Key) -> Sequence[Data | None]:
        """The samples of all clients from one call; all None if an error must be traced to its client."""
        if not self._side.tolerates_errors:
            with suppress(Exception):  # the client with the faulty samples will raise it again
                return self._side.scheduled(clients, key)
        return [None] * len(clients)

    def _answers(
        self, waiting: Sequence[Waiting], round: int, key: Key, together: bool
    ) -> Iterator[SolverAnswer]:
        """Train waiting clients, or compute what they request: consecutive alike requests in one call."""
        method, task = self._side.method.client_method, self._side.task
        assert isinstance(method, Training)
        for _, equal in groupby(waiting, lambda one: _kind(one.asked)):
            some = list(equal)
            asked, data = [one.asked for one in some], [one.data for one in some]
            starts = [start for start in asked if isinstance(start, Start)]
            if not starts:
                models = [request.weights for request in asked]
                fisher = isinstance(asked[0], ComputeFisher)
                compute = fisher_diagonals if fisher else method.local.losses
                yield from map(SolverAnswer, compute(task, models, data, self._threads))
                continue
            keys, model = ClientKeys(key, [one.client.id for one in some], "noise"), starts[0].task or task
            held = [start.data or own for start, own in zip(starts, data, strict=True)]
            settings, block = [one.client.context.setting for one in some], Block.of(held)
            done = method.local.train_block(model, starts, block, keys, round, self._threads, settings)
            if together:
                done.wait(None)
            for i in range(len(some)):
                yield SolverAnswer(done.single(i), bool(done.sound[i]))


def _kind(asked: Request) -> Hashable:
    """Equal for requests that can be answered in one call."""
    if not isinstance(asked, Start):
        return type(asked).__name__
    return tuple(term.kind for term in asked.terms), id(asked.task), asked.controls


def _merged(sent: Sequence[Tree]) -> Tree:
    """The messages of a block as one message; fields that differ between clients are `PerClient`."""
    if all(message is sent[0] for message in sent):
        return sent[0]
    columns = zip(*sent, strict=True)
    return type(sent[0])(*(c[0] if all(f is c[0] for f in c) else PerClient(c) for c in columns))
