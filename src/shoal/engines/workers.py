"""Worker processes with one thread each.

Workers are forked, so that data, task and method are there at once and never sent. Messages, memories and
answers lie in memory that the processes share; only a few numbers for each client go through a pipe. A
worker has at most two clients in hand, handed out and taken back in the cohort's order, so that the memory
in use does not grow with the cohort.

A worker that dies is replaced and its clients are tried once more; a second death is an error that names
the client.
"""

from __future__ import annotations

import mmap
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from torch import Tensor

from shoal.core.client import ClientSide, Visit
from shoal.core.codec import Packet
from shoal.core.engine import Delivery, Work
from shoal.core.errors import SpecError, StageError
from shoal.core.key import Key
from shoal.core.outbox import Outbox
from shoal.core.serialization import from_buffer, into_buffer, nbytes, to_bytes
from shoal.core.tree import tree_map
from shoal.core.types import Cohort, PerClient, Tree
from shoal.engines.memory import MemoryStore
from shoal.engines.serial import delivered
from shoal.engines.worker import Errand, Returned, Slot, serve

IN_HAND = 2  # clients that a worker has at once: one in work, and one that waits before or after
SPARE = 2**20  # bytes of a slot beyond what is expected to lie in it


@dataclass
class Worker:
    """A process, this end of its pipe, and the memory shared with it."""

    process: Any
    pipe: Connection
    slots: list[Slot]
    hand: dict[int, int] = field(default_factory=dict)  # slot -> position in the cohort, in order

    def free(self) -> int | None:
        """A slot that is not in use."""
        return next((i for i in range(len(self.slots)) if i not in self.hand), None)


class Workers:
    """Visits clients in several processes."""

    def __init__(self, side: ClientSide, store: MemoryStore, count: int) -> None:
        self.side, self.store = side, store
        self._count = count
        self.workers: list[Worker] = []
        self.box: mmap.mmap | None = None  # for the message that all clients of an exchange get
        self.letters = 0
        self._capacity = 0
        self.largest = 0  # answer that came back so far

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""
        outbox = Outbox(self.side.codec, cohort, message, key)
        shared = not any(isinstance(field, PerClient) for field in message) and not cohort.settings
        self._grow(cohort, outbox)
        return Exchange(self, work, cohort, outbox, key, shared).deliveries()

    def _grow(self, cohort: Cohort, outbox: Outbox) -> None:
        """Have workers, with slots in which what is to be expected fits."""
        needed = max(2 * outbox[0][2] if cohort.ids else 0, self.largest) + SPARE
        if self.workers and needed <= self._capacity:
            return
        self.close()
        self._capacity = max(2 * self._capacity, needed)
        self.box = mmap.mmap(-1, self._capacity)
        self.workers = []
        for _ in range(self._count):
            self.workers.append(self._start())

    def replace(self, dead: Worker) -> None:
        """Put a new worker in the place of a dead one."""
        dead.process.join()
        dead.pipe.close()
        place = self.workers.index(dead)
        del self.workers[place]
        self.workers.insert(place, self._start())

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.join()
            worker.pipe.close()
        self.workers = []

    def _start(self) -> Worker:
        slots = [Slot(mmap.mmap(-1, self._capacity), mmap.mmap(-1, self._capacity)) for _ in range(IN_HAND)]
        here, there = get_context("fork").Pipe()
        inherited = [*(worker.pipe for worker in self.workers), here]
        arguments = (self.side, self.box, slots, there, inherited)
        process = get_context("fork").Process(target=serve, args=arguments, daemon=True)
        process.start()
        there.close()
        return Worker(process, here, slots)


class Exchange:
    """One exchange: hands out clients in order, takes answers back in order."""

    def __init__(
        self, pool: Workers, work: Work, cohort: Cohort, outbox: Outbox, key: Key, shared: bool
    ) -> None:
        self._pool, self._work, self._cohort, self._key = pool, work, cohort, key
        self._outbox = outbox
        self._waiting = deque(range(len(cohort.ids)))
        self._arrived: dict[int, tuple[Worker, Returned]] = {}
        self._died: set[int] = set()
        self._began: dict[int, float] = {}
        self._letter = self._post() if shared and cohort.ids else 0

    def deliveries(self) -> Iterator[Delivery]:
        """What comes back, in the cohort's order."""
        try:
            for position in range(len(self._cohort.ids)):
                self._hand_out()
                while position not in self._arrived:
                    self._listen()
                    self._hand_out()
                worker, done = self._arrived.pop(position)
                yield self._read(position, worker, done)
                worker.hand.pop(done.slot)
        except BaseException:
            self._pool.close()  # nobody may go on with half an exchange
            raise

    def _post(self) -> int:
        """Put the message into the box; returns its number, or 0 if it does not fit."""
        packet, _, length = self._outbox[0]
        assert self._pool.box is not None
        if length > len(self._pool.box):
            return 0
        into_buffer(packet.content, memoryview(self._pool.box))
        self._pool.letters += 1
        return self._pool.letters

    def _hand_out(self) -> None:
        while self._waiting:
            free = [(len(w.hand), i) for i, w in enumerate(self._pool.workers) if w.free() is not None]
            if not free:
                return
            self._give(self._pool.workers[min(free)[1]], self._waiting.popleft())

    def _give(self, worker: Worker, position: int) -> None:
        client, slot = self._cohort.ids[position], worker.free()
        assert slot is not None
        memory = self._pool.store.read(client, self._work.accepted.get(client))
        message = None if self._letter else self._outbox[position][0].content
        parcel, data = (message, memory), None
        if nbytes(parcel) <= len(worker.slots[slot].inward):
            into_buffer(parcel, memoryview(worker.slots[slot].inward))
        else:
            data = to_bytes(parcel)
        setting, key = dict(self._cohort.setting(position)), self._key.fold("client", client)
        job = Errand(
            slot, self._letter, client, self._work.verb, self._work.round, self._work.leg, setting, key, data
        )
        worker.hand[slot] = position
        self._began[position] = time.perf_counter()
        try:
            worker.pipe.send(job)
        except OSError:
            self._bury(worker)

    def _listen(self) -> None:
        """Wait for at least one worker to answer, or to die."""
        pipes = {worker.pipe: worker for worker in self._pool.workers if worker.hand}
        for pipe in wait(list(pipes)):
            worker = pipes[pipe]  # type: ignore[index]
            try:
                done: Returned = worker.pipe.recv()
            except (EOFError, OSError):
                self._bury(worker)
                continue
            if done.error:
                raise (SpecError if done.curable else StageError)(done.error)
            self._pool.largest = max(self._pool.largest, done.length)
            self._arrived[worker.hand[done.slot]] = (worker, done)

    def _bury(self, worker: Worker) -> None:
        """A worker died: its clients go to others, unless one of them killed a worker before."""
        lost = [position for position in worker.hand.values() if position not in self._arrived]
        self._pool.replace(worker)
        for position in reversed(lost):
            self._waiting.appendleft(position)
        if lost:
            if lost[0] in self._died:
                raise StageError(
                    f"{self._work.verb} of client {self._cohort.ids[lost[0]]} failed in round "
                    f"{self._work.round + 1}: two worker processes died of it, the last with exit code "
                    f"{worker.process.exitcode} (-9: killed, often for want of memory)"
                )
            self._died.add(lost[0])

    def _read(self, position: int, worker: Worker, done: Returned) -> Delivery:
        pool, client = self._pool, self._cohort.ids[position]
        _, sent, down = self._outbox[position]
        visit = Visit(pool.side.fresh, None, done.reason)
        if not done.reason:
            shared = done.data is None
            buffer = memoryview(worker.slots[done.slot].outward) if shared else memoryview(done.data)  # type: ignore[arg-type]
            kept, content = from_buffer(buffer)
            if shared:  # the slot will be used again, and anybody may keep a reply
                kept, content = _copied(kept), _copied(content)
            visit = Visit(kept, Packet(content))
        return delivered(pool.side, pool.store, self._work, client, sent, visit, down, self._began[position])


def _copied(tree: Tree) -> Tree:
    return tree_map(lambda leaf: torch.clone(leaf) if isinstance(leaf, Tensor) else leaf, tree)
