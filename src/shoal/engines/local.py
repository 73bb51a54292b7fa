"""The local engine: all clients on this machine.

It visits them one after another, in blocks, or in worker processes; `choose_mode` decides from the spec
alone, so that the same spec always runs in the same way.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from typing import Literal

from shoal.core.client import ClientSide
from shoal.core.collusion import Collusion
from shoal.core.data import Shards
from shoal.core.engine import Delivery, Engine, Memory, Walk, Work
from shoal.core.key import Key
from shoal.core.selector import Population
from shoal.core.types import Cohort, Metrics, State, Tree, Version
from shoal.engines.block import Blocks, trains_in_blocks
from shoal.engines.memory import MemoryStore
from shoal.engines.serial import Serial
from shoal.engines.workers import Workers

Mode = Literal["serial", "block", "workers"]

WORTH_A_PROCESS = 2**26  # parameters x samples of a client and round; below, handing over costs too much
STAGED = 2  # legs of a round that always are exchanges; what a third sends is what the second sent


class LocalEngine(Engine):
    """Visits clients in the mode that suits them."""

    def __init__(
        self,
        side: ClientSide,
        shards: Shards,
        mode: Mode = "serial",
        workers: int = 1,
        population: Population | None = None,  # those that can be reached; all when None
    ) -> None:
        self._side, self._shards, self._store = side, shards, MemoryStore()
        self._population = range(len(shards)) if population is None else population
        self._threads = workers
        self._way: Serial | Blocks | Workers | Collusion = Serial(side, self._store)
        if mode == "block":
            self._way = Blocks(side, self._store, workers)
        elif mode == "workers":
            self._way = Workers(side, self._store, workers)
        if side.attack is not None and (side.attack.knows != "own" or mode == "block"):
            self._way = Collusion(side, self._way, self._store)

    def clients(self, round: int) -> Population:
        """See `Engine`."""
        return self._population

    def samples(self, clients: Sequence[int]) -> Sequence[int]:
        """See `Engine`."""
        return self._shards.counts(clients)

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""
        return self._way.exchange(work, cohort, message, key)

    def walk(self, walk: Walk) -> None:
        """See `Engine`. Where all legs are alike, the method may know where they lead."""
        for leg in range(len(walk.legs)):
            end = self._end(walk) if leg == STAGED and walk.complete else None
            if end is not None:
                return walk.arrive(*end)
            walk.step()
        return None

    def _end(self, walk: Walk) -> tuple[State, Metrics] | None:
        """Where the legs that are left lead to, if that can be told without exchanging anything.

        Nobody may change what clients answer, remember anything, or watch.
        """
        side, cohort = self._side, walk.legs[0]
        changed = side.attack is not None or side.privacy is not None or not side.codec.transparent
        if changed or side.remembers or side.selector.observes:
            return None
        if any(leg is not cohort for leg in walk.legs):
            return None
        data = {client: side.data.train(client, None, side.key, full=False) for client in cohort.ids}
        rest = len(walk.legs) - STAGED
        return side.method.shortcut(side.task, walk.state, data, rest, self._threads)

    def memory(self, client: int, version: Version | None) -> Memory:
        """See `Engine`."""
        return self._store.read(client, version) or self._side.fresh

    def restore(self, client: int, version: Version, memory: Memory) -> None:
        """See `Engine`."""
        self._store.restore(client, version, memory)

    def close(self) -> None:
        """See `Engine`."""
        self._way.close()


def choose_mode(side: ClientSide, shards: Shards) -> Mode:
    """The fastest mode, by a model of the costs; its bits are those of one client after another.

    Compiled kernels train a block of small dense models many times faster than torch's step. A large model
    keeps a core busy long enough to be worth a process. For what is left, handing over costs more than it
    brings.
    """
    if trains_in_blocks(side):
        return "block"
    parameters = sum(shape.numel() for shape in side.task.shapes.values())
    batching = side.method.batching
    epochs = batching.epochs if batching else 1
    samples = sum(shards.count(client) for client in range(min(len(shards), 10))) / min(len(shards), 10)
    heavy = parameters * samples * epochs >= WORTH_A_PROCESS
    return "workers" if heavy and "fork" in multiprocessing.get_all_start_methods() else "serial"


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
