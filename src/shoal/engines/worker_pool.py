"""Worker processes with one thread each.

Workers are forked, so that they have data, task and method without any transfer. Messages, memories and
answers are passed in shared memory; only a few numbers per client go through a pipe. A worker has at most two
clients at a time. Clients are assigned and collected in the order of the cohort, so that memory use does not
grow with the cohort. While clients are quick, each worker has its next one at hand; where they take long, a
client goes to the first worker that is free, or the round would end with one worker idle.

If a worker dies, or takes too long for one client, it is replaced and its clients are run once more; the
second time, that is an error that names the client.
"""

from __future__ import annotations

import math
import mmap
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from torch import Tensor

from shoal.core.client import ClientSide, Visit
from shoal.core.codec import Packet
from shoal.core.engine import Delivery, Verb, Work
from shoal.core.errors import SpecError, StageError
from shoal.core.flat import flat
from shoal.core.key import Key
from shoal.core.outbox import Outbox
from shoal.core.serialization import from_buffer, into_buffer, nbytes, to_bytes
from shoal.core.tree import tree_map
from shoal.core.types import Cohort, PerClient, Tree
from shoal.engines.client_memory import MemoryStore
from shoal.engines.serial import delivered
from shoal.engines.worker_process import ClientJob, ClientResult, Slot, serve

SLOTS = 2  # clients that a worker has at a time: one runs, one waits to run or to be collected
QUICK = 0.05  # seconds: a client that takes longer is not assigned before its worker is free
SPARE = 2**20  # extra bytes of a slot, beyond the expected size of its content


@dataclass
class Worker:
    """A process, our end of its pipe, and the memory shared with it."""

    process: Any
    pipe: Connection
    slots: list[Slot]
    assigned: dict[int, int] = field(default_factory=dict)  # slot -> position in the cohort, in order
    since: float = 0.0  # when it started on its current client
    silent: bool = False  # whether it was killed because it did not answer in time

    def free(self) -> int | None:
        """A slot that is not in use, if there is one."""
        return next((i for i in range(len(self.slots)) if i not in self.assigned), None)


class Workers:
    """Runs clients in several processes."""

    def __init__(self, side: ClientSide, store: MemoryStore, count: int, timeout: float = math.inf) -> None:
        self.side, self.store = side, store
        self.timeout = timeout  # seconds for one client
        self._count = count
        self.workers: list[Worker] = []
        self.buffer: mmap.mmap | None = None  # for the message that all clients of an exchange share
        self.shared_messages = 0  # how many have been written to the buffer
        self._capacity = 0
        self.largest = 0  # bytes of the largest answer so far
        self.seconds: dict[Verb, float] = {}  # that the last client took

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""
        outbox = Outbox(self.side.codec, cohort, message, key)
        shared = not any(isinstance(field, PerClient) for field in message) and not cohort.settings
        self._grow(cohort, outbox)
        return Exchange(self, work, cohort, outbox, key, shared).deliveries()

    def _grow(self, cohort: Cohort, outbox: Outbox) -> None:
        """Start workers, or restart them with larger slots if the message needs them."""
        needed = max(2 * outbox[0][2] if cohort.ids else 0, self.largest) + SPARE
        if self.workers and needed <= self._capacity:
            return
        self.close()
        self._capacity = max(2 * self._capacity, needed)
        self.buffer = mmap.mmap(-1, self._capacity)
        self.workers = []
        for _ in range(self._count):
            self.workers.append(self._start())

    def replace(self, dead: Worker) -> None:
        """Replace a dead worker by a new one."""
        dead.process.join()
        dead.pipe.close()
        place = self.workers.index(dead)
        del self.workers[place]
        self.workers.insert(place, self._start())

    def close(self) -> None:
        """Stop all workers."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.join()
            worker.pipe.close()
        self.workers = []

    def _start(self) -> Worker:
        slots = [Slot(mmap.mmap(-1, self._capacity), mmap.mmap(-1, self._capacity)) for _ in range(SLOTS)]
        here, there = get_context("fork").Pipe()
        inherited = [*(worker.pipe for worker in self.workers), here]
        arguments = (self.side, self.buffer, slots, there, inherited)
        process = get_context("fork").Process(target=serve, args=arguments, daemon=True)
        process.start()
        there.close()
        return Worker(process, here, slots)


class Exchange:
    """One exchange: assigns clients to workers and yields their deliveries, both in the cohort's order."""

    def __init__(
        self, pool: Workers, work: Work, cohort: Cohort, outbox: Outbox, key: Key, shared: bool
    ) -> None:
        self._pool, self._work, self._cohort, self._key = pool, work, cohort, key
        self._outbox = outbox
        self._waiting = deque(range(len(cohort.ids)))
        self._arrived: dict[int, tuple[Worker, ClientResult]] = {}
        self._lost_once: set[int] = set()
        self._shared = self._share() if shared and cohort.ids else 0

    def deliveries(self) -> Iterator[Delivery]:
        """The deliveries, in the order of the cohort."""
        try:
            for position in range(len(self._cohort.ids)):
                self._assign()
                while position not in self._arrived:
                    self._collect()
                    self._assign()
                worker, done = self._arrived.pop(position)
                yield self._read(position, worker, done)
                worker.assigned.pop(done.slot)
        except BaseException:
            self._pool.close()  # workers may still be busy with the abandoned exchange
            raise

    def _share(self) -> int:
        """Write the message to the shared buffer; returns its number, or 0 if it does not fit."""
        packet, _, length = self._outbox[0]
        assert self._pool.buffer is not None
        if length > len(self._pool.buffer):
            return 0
        into_buffer(packet.content, memoryview(self._pool.buffer))
        self._pool.shared_messages += 1
        return self._pool.shared_messages

    def _assign(self) -> None:
        while self._waiting:
            free = [(len(w.assigned), i) for i, w in enumerate(self._pool.workers) if self._takes_more(w)]
            if not free:
                return
            self._send(self._pool.workers[min(free)[1]], self._waiting.popleft())

    def _takes_more(self, worker: Worker) -> bool:
        """Whether a worker may be assigned a client, to be run at once or as its next one."""
        quick = self._pool.seconds.get(self._work.verb, math.inf) < QUICK
        return worker.free() is not None and (quick or not self._unanswered(worker))

    def _send(self, worker: Worker, position: int) -> None:
        client, slot = self._cohort.ids[position], worker.free()
        assert slot is not None
        memory = self._pool.store.read(client, self._work.accepted.get(client))
        message = None if self._shared else self._outbox[position][0].content
        content, data = (message, memory), None
        if nbytes(content) <= len(worker.slots[slot].inward):
            into_buffer(content, memoryview(worker.slots[slot].inward))
        else:
            data = to_bytes(content)
        setting, key = dict(self._cohort.setting(position)), self._key.fold("client", client)
        job = ClientJob(
            slot, self._shared, client, self._work.verb, self._work.round, self._work.leg, setting, key, data
        )
        if not self._unanswered(worker):
            worker.since = time.monotonic()
        worker.assigned[slot] = position
        try:
            worker.pipe.send(job)
        except OSError:
            self._retry(worker)

    def _collect(self) -> None:
        """Wait until at least one worker answers, dies, or has taken too long."""
        pipes = {worker.pipe: worker for worker in self._pool.workers if worker.assigned}
        busy = [worker for worker in pipes.values() if self._unanswered(worker)]
        ready = wait(list(pipes), self._patience(busy))
        if not ready:
            self._end_the_silent(busy)
        for pipe in ready:
            worker = pipes[pipe]  # type: ignore[index]
            try:
                done: ClientResult = worker.pipe.recv()
            except (EOFError, OSError):
                self._retry(worker)
                continue
            if done.error:
                raise (SpecError if done.is_spec_error else StageError)(done.error)
            now = time.monotonic()
            self._pool.seconds[self._work.verb], worker.since = now - worker.since, now
            self._pool.largest = max(self._pool.largest, done.length)
            self._arrived[worker.assigned[done.slot]] = (worker, done)

    def _unanswered(self, worker: Worker) -> list[int]:
        """The positions of a worker's clients that it has not answered yet."""
        return [position for position in worker.assigned.values() if position not in self._arrived]

    def _patience(self, busy: Sequence[Worker]) -> float | None:
        """How many seconds to wait for a worker's next answer; None: forever."""
        if math.isinf(self._pool.timeout):
            return None
        oldest = min(worker.since for worker in busy)
        return max(0.0, oldest + self._pool.timeout - time.monotonic())

    def _end_the_silent(self, busy: Sequence[Worker]) -> None:
        """Kill workers that have not answered in time; they are then replaced like dead ones."""
        for worker in busy:
            if time.monotonic() - worker.since >= self._pool.timeout:
                worker.silent = True
                worker.process.kill()
                self._retry(worker)

    def _retry(self, worker: Worker) -> None:
        """Replace a dead worker and run its clients again, unless one of them was lost before."""
        lost = self._unanswered(worker)
        self._pool.replace(worker)
        for position in reversed(lost):
            self._waiting.appendleft(position)
        if lost:
            if lost[0] in self._lost_once:
                cause = (
                    f"two worker processes did not answer within engine.timeout = {self._pool.timeout:g} s"
                    if worker.silent
                    else f"two worker processes died, the last with exit code {worker.process.exitcode} "
                    "(-9: killed, often because memory ran out)"
                )
                raise StageError(
                    f"{self._work.verb} of client {self._cohort.ids[lost[0]]} failed in round "
                    f"{self._work.round + 1}: {cause}"
                )
            self._lost_once.add(lost[0])

    def _read(self, position: int, worker: Worker, done: ClientResult) -> Delivery:
        pool, client = self._pool, self._cohort.ids[position]
        _, sent, down = self._outbox[position]
        visit = Visit(pool.side.fresh, None, done.reason)
        if not done.reason:
            shared = done.data is None
            buffer = memoryview(worker.slots[done.slot].outward) if shared else memoryview(done.data)  # type: ignore[arg-type]
            kept, content = from_buffer(buffer)
            if shared:  # the slot will be reused, but a reply may be kept
                kept, content = _copied(kept), _copied(content)
            visit = Visit(kept, Packet(content))
        return delivered(pool.side, pool.store, self._work, client, sent, visit, down)


def _copied(tree: Tree) -> Tree:
    """A copy in which each model is one vector, so that it can be checked and summed in one operation."""
    return tree_map(_own, tree, is_leaf=_is_model)


def _is_model(node: Tree) -> bool:
    return isinstance(node, dict) and all(isinstance(leaf, Tensor) and leaf.dim() for leaf in node.values())


def _own(leaf: Any) -> Any:
    if isinstance(leaf, dict):
        together = flat(leaf)
        return {name: value.clone() for name, value in leaf.items()} if together is leaf else together
    return torch.clone(leaf) if isinstance(leaf, Tensor) else leaf
