"""The engine of this process: it runs clients one after another, in blocks, or in worker processes.

With a `RemoteRunner`, clients run elsewhere instead: on a Ray cluster, or at the sites of a federation.
"""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from shoal.core.arrivals import Timetable
from shoal.core.client import ClientSide
from shoal.core.collusion import ClientRunner, Collusion
from shoal.core.data import Shards
from shoal.core.devices import Fleet
from shoal.core.engine import TRAINING, Delivery, Engine, Memory, Walk, Work
from shoal.core.key import Key
from shoal.core.population import Population
from shoal.core.training import solver_of
from shoal.core.types import Cohort, Metrics, Report, State, Tree, Version
from shoal.engines.auto import Auto
from shoal.engines.block import Blocks, trains_in_blocks
from shoal.engines.client_memory import MemoryStore
from shoal.engines.serial import Serial
from shoal.engines.worker_pool import Workers

Mode = Literal["auto", "serial", "block", "workers"]

MODES: dict[type, str] = {Serial: "serial", Blocks: "block", Workers: "workers"}
EXCHANGED = 2  # legs of a round that are always exchanged, so that the byte counts of later legs are known


class RemoteRunner(NamedTuple):
    """Runs clients on other machines."""

    start: Callable[[ClientSide, MemoryStore], ClientRunner]
    keeps_memories: bool = False  # whether the clients' memories stay on those machines


class LocalEngine(Engine):
    """Runs clients in the given mode, or finds the fastest one."""

    def __init__(
        self,
        side: ClientSide,
        shards: Shards,
        mode: Mode = "serial",
        workers: int = 1,
        timetable: Timetable | None = None,  # the clients that are present in each round; None: all
        fleet: Fleet | None = None,  # the devices, if they are simulated
        remote: RemoteRunner | None = None,  # runs the clients on a cluster instead of here
        timeout: float = math.inf,  # seconds for one client, in a worker process
    ) -> None:
        self._fleet = fleet
        self._side, self._shards, self._store = side, shards, MemoryStore()
        self._timetable = timetable or (lambda round: range(len(shards)))
        self._threads, self._timeout = workers, timeout
        if remote is not None:
            runners = [remote.start(side, self._store)]
        else:
            runners = [self._in_mode(one) for one in (self._candidates() if mode == "auto" else [mode])]
            solver = solver_of(side.method)
            if solver is not None:
                solver.prepare(side.task)  # before processes are forked, and before "auto" measures time
        self._here = remote is None
        self._keeps_memories = remote is None or not remote.keeps_memories
        self._auto = Auto(runners, shards.counts)
        self._runner: Auto | Collusion = self._auto
        blocks = any(isinstance(runner, Blocks) for runner in runners)
        if side.attack is not None and (side.attack.knows != "own" or blocks):
            self._runner = Collusion(side, self._runner, self._store)

    def _in_mode(self, mode: Mode) -> ClientRunner:
        if mode == "block":
            return Blocks(self._side, self._store, self._threads)
        if mode == "workers":
            return Workers(self._side, self._store, self._threads, self._timeout)
        return Serial(self._side, self._store)

    def _candidates(self) -> list[Mode]:
        """The modes that may be the fastest: kernels beat torch, and processes pay off for long jobs."""
        first: Mode = "block" if trains_in_blocks(self._side) else "serial"
        forks = "fork" in multiprocessing.get_all_start_methods() and self._threads > 1
        return [first, "workers"] if forks and self._side.task.device == "cpu" else [first]

    @property
    def mode(self) -> str:
        """The mode in use; with "auto" the one that is being tried, or the fastest."""
        return MODES[type(self._auto.runner)] if self._here else "cluster"

    @property
    def settled(self) -> bool:
        """Whether the mode is final."""
        return self._auto.settled

    def clients(self, round: int) -> Population:
        """See `Engine`."""
        present = self._timetable(round)
        return present if self._fleet is None else self._fleet.reachable(present, round)

    def reports(self, round: int) -> Mapping[int, Report]:
        """See `Engine`."""
        if self._fleet is None:
            return {}
        clients = list(self.clients(round))
        if not clients:
            return {}
        table = self._fleet.table(clients, round)
        work = np.array(self._shards.counts(clients)) * self._side.method.passes
        with np.errstate(divide="ignore"):  # a rate of 0 takes forever
            links = self._fleet.crowd.model_bytes * (1 / table.down + 1 / table.up)
            compute = work / table.speed
        total = compute + links + 2 * table.latency
        columns = (compute, table.down, table.up, table.latency, total)
        return {
            c: Report(*map(float, row)) for c, row in zip(clients, zip(*columns, strict=True), strict=True)
        }

    def samples(self, clients: Sequence[int]) -> Sequence[int]:
        """See `Engine`."""
        return self._shards.counts(clients)

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""
        self._store.forget_replaced(work.accepted)
        deliveries = self._runner.exchange(work, cohort, message, key)
        if self._fleet is None or work.verb not in TRAINING:
            return deliveries
        return self._timed(self._fleet, work, cohort, deliveries)

    def _timed(
        self, fleet: Fleet, work: Work, cohort: Cohort, deliveries: Iterator[Delivery]
    ) -> Iterator[Delivery]:
        """The deliveries with the virtual time that each client would have needed."""
        formats = dict(zip(cohort.ids, cohort.settings.get("format", ()), strict=False))
        solver = solver_of(self._side.method)
        usual = "float32" if solver is None else solver.format
        for delivery in deliveries:
            count = len(delivery.clients)
            down, up = delivery.bytes_down // count, delivery.bytes_up // count
            spent = (
                fleet.spent(
                    client,
                    work.round,
                    down,
                    up,
                    samples * self._side.method.passes,
                    formats.get(client, usual),
                )
                for client, samples in zip(
                    delivery.clients, self._shards.counts(delivery.clients), strict=True
                )
            )
            yield delivery._replace(spent=tuple(spent))

    def walk(self, walk: Walk) -> None:
        """See `Engine`. If all legs are the same, the method may know a shortcut for the remaining ones."""
        for leg in range(len(walk.legs)):
            end = self._shortcut(walk) if leg == EXCHANGED and walk.complete else None
            if end is not None:
                return walk.arrive(*end)
            walk.step()
        return None

    def _shortcut(self, walk: Walk) -> tuple[State, Metrics] | None:
        """The state after the remaining legs, if the method can compute it without exchanging anything.

        Not possible with an attack, privacy, a lossy codec, client memories, or a selector that observes
        replies; nor if clients run elsewhere.
        """
        side, cohort = self._side, walk.legs[0]
        changed = side.attack is not None or side.privacy is not None or not side.codec.transparent
        if changed or side.remembers or side.selector.observes or not self._here:
            return None
        if any(leg is not cohort for leg in walk.legs):
            return None
        data = {client: side.data.train(client, None, side.key, full=False) for client in cohort.ids}
        rest = len(walk.legs) - EXCHANGED
        return side.method.shortcut(side.task, walk.state, data, rest, self._threads)

    def memory(self, client: int, version: Version | None) -> Memory | None:
        """See `Engine`."""
        if not self._keeps_memories:
            return None
        return self._store.read(client, version) or self._side.fresh

    def restore(self, client: int, version: Version, memory: Memory) -> None:
        """See `Engine`."""
        self._store.restore(client, version, memory)

    def close(self) -> None:
        """See `Engine`."""
        self._runner.close()
