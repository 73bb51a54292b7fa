"""Clients on a Ray cluster: actors that live as long as the run.

Every actor has the clients' data, mapped from the node's shared memory, and keeps the memories of the clients
that it ran. A message is sent once to each node. New memories are returned with the replies and are kept here
too, so that the clients of a lost node continue elsewhere, with the same bits.
"""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from shoal.core.client import ClientSide
from shoal.core.engine import Delivery, Work
from shoal.core.errors import SpecError, StageError
from shoal.core.key import Key
from shoal.core.outbox import Outbox
from shoal.core.types import Cohort, PerClient, Tree, Version, message_part
from shoal.engines.client_memory import MemoryStore
from shoal.engines.ray_actor import ActorJob, ActorResult, ClientActor
from shoal.engines.tensor_pickle import pack, unpack

AHEAD = 2  # calls that an actor has at a time: one runs, one waits
MOST = 64  # clients per call
PATIENCE = 200  # seconds to wait for an actor
LOSSES = 3  # the run ends when this many actors have died with the same clients


class Call(NamedTuple):
    """Some clients of an exchange, sent to an actor."""

    positions: tuple[int, ...]
    actor: int
    result: Any  # of the call, as an object reference


class RayActors:
    """Runs clients on the actors of a Ray cluster."""

    def __init__(self, side: ClientSide, store: MemoryStore, address: str, count: int) -> None:
        """`count` actors, or one for each processor of the cluster if it is 0."""
        self.side, self.store = side, store
        self._ray, self._started = connect(address, count)
        self._count = count or int(self._ray.cluster_resources().get("CPU", 1))
        self._side = self._ray.put(pack(side))
        self.actors: dict[int, Any] = {}
        self._coming: dict[int, tuple[Any, Any]] = {}  # actors that are not ready yet
        self._held: dict[int, dict[int, set[Version]]] = {}  # actor -> client -> versions of its memory
        self._numbers = 0
        for _ in range(self._count):
            self._order_actor()
        self._welcome(self._count, PATIENCE)

    # ---- actors

    def _order_actor(self) -> None:
        """Request another actor; it is used once it is ready."""
        kind = self._ray.remote(num_cpus=1, scheduling_strategy="SPREAD", max_restarts=0)(ClientActor)
        actor = kind.remote(self._side)
        self._coming[self._numbers] = (actor, actor.ready.remote())
        self._numbers += 1

    def _welcome(self, wanted: int, patience: float) -> None:
        """Use the actors that are ready; if they are fewer than `wanted`, wait for more."""
        while self._coming:
            refs = {ready: number for number, (_, ready) in self._coming.items()}
            lacking = max(1, min(wanted - len(self.actors), len(refs)))
            there, _ = self._ray.wait(
                list(refs), num_returns=lacking, timeout=patience if len(self.actors) < wanted else 0
            )
            for ready in there:
                self._admit(refs[ready], ready)
            if len(there) < lacking or len(self.actors) >= wanted:
                break
        if not self.actors:
            raise StageError(
                f"no actor could be started on the Ray cluster within {PATIENCE} s; add nodes, then "
                "`shoal resume` goes on from the last checkpoint"
            )

    def _admit(self, number: int, ready: Any) -> None:
        actor, _ = self._coming.pop(number)
        try:
            self._ray.get(ready)
        except self._ray.exceptions.ActorDiedError as error:
            if "ClientActor.__init__" in str(error):  # it would fail on any node
                raise StageError(f"an actor of the Ray cluster cannot be built: {error}") from None
            self._order_actor()
        else:
            self.actors[number], self._held[number] = actor, {}

    def lose(self, number: int) -> None:
        """Give up an actor that died, and request another."""
        if number in self.actors:
            self._ray.kill(self.actors.pop(number))
            del self._held[number]
            self._order_actor()
        self._welcome(1, PATIENCE)

    def close(self) -> None:
        """Stop the actors, and the cluster if it was started here."""
        for actor in [*self.actors.values(), *(actor for actor, _ in self._coming.values())]:
            self._ray.kill(actor)
        self.actors, self._coming = {}, {}
        if self._started and self._ray.is_initialized():
            self._ray.shutdown()

    # ---- exchanges

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""
        self._welcome(1, PATIENCE)
        return _Exchange(self, work, cohort, message, key).deliveries()

    def put(self, value: Any) -> Any:
        """A reference to the value in Ray's object store."""
        return self._ray.put(pack(value))

    def call(self, number: int, work: Work, cohort: Cohort, key: Key, message: Any) -> Any:
        """Have an actor run some clients; returns a reference to the result."""
        held, given = self._held[number], {}
        accepted = {c: work.accepted[c] for c in cohort.ids if c in work.accepted}
        for client, version in accepted.items():
            if version not in held.get(client, ()):
                memory = self.store.read(client, version)
                if memory is not None:
                    given[client] = (version, memory)
                    held[client] = {version}
        job = ActorJob(work._replace(accepted=accepted), cohort, key, given)
        return self.actors[number].exchange.remote(pack(job), message)

    def collect(self, call: Call) -> ActorResult | None:
        """The result of a call; None if its actor died."""
        try:
            packed, error, is_spec_error = self._ray.get(call.result)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError):
            return None
        if packed is None:
            raise (SpecError if is_spec_error else StageError)(error)
        result: ActorResult = unpack(packed)
        return result

    def keep(self, work: Work, call: Call, result: ActorResult) -> None:
        """Keep the new memories of clients."""
        for client, memory in result.memories.items():
            self.store.write(client, work.accepted.get(client), work.version, memory)
            held = self._held.get(call.actor, {})
            if work.verb == "train":  # the memory is not final: the attackers' replies are yet to be encoded
                held.pop(client, None)
            else:
                held[client] = {work.version, *([work.accepted[client]] if client in work.accepted else [])}


class _Exchange:
    """One exchange: assigns clients to actors and yields their deliveries, in the order of the cohort."""

    def __init__(self, pool: RayActors, work: Work, cohort: Cohort, message: Tree, key: Key) -> None:
        self._pool, self._work, self._cohort, self._key = pool, work, cohort, key
        self._message, self._outbox = message, Outbox(pool.side.codec, cohort, message, key)
        shared = not any(isinstance(field, PerClient) for field in message)
        self._shared = pool.put(message) if shared and cohort.ids else None
        self._losses: Counter[tuple[int, ...]] = Counter()

    def deliveries(self) -> Iterator[Delivery]:
        """The deliveries, in the order of the cohort."""
        running: deque[list[Call]] = deque()
        for hands in self._dealt():
            running.append([self._sent(positions, i) for i, positions in enumerate(hands)])
            if len(running) == AHEAD:
                yield from self._collected(running.popleft())
        while running:
            yield from self._collected(running.popleft())

    def _dealt(self) -> Iterator[list[tuple[int, ...]]]:
        """Positions for each actor, dealt out one at a time, because the largest clients come first."""
        actors, count = len(self._pool.actors), len(self._cohort.ids)
        size = max(1, min(MOST, -(-count // actors)))
        for first in range(0, count, size * actors):
            window = range(first, min(first + size * actors, count))
            yield [tuple(window[i::actors]) for i in range(min(actors, len(window)))]

    def _sent(self, positions: tuple[int, ...], turn: int) -> Call:
        numbers = sorted(self._pool.actors)
        actor = numbers[turn % len(numbers)]
        message = self._shared
        if message is None:
            part = message_part(self._message, positions)
            fields = (PerClient(tuple(f.rows)) if isinstance(f, PerClient) else f for f in part)
            message = self._pool.put(type(part)(*fields))
        members = self._cohort.take(list(positions))
        return Call(positions, actor, self._pool.call(actor, self._work, members, self._key, message))

    def _collected(self, calls: Sequence[Call]) -> Iterator[Delivery]:
        found: dict[int, Delivery] = {}
        for turn, call in enumerate(calls):
            while (result := self._pool.collect(call)) is None:
                self._lost(call)
                call = self._sent(call.positions, turn)
            self._pool.keep(self._work, call, result)
            singles = (single for delivery in result.deliveries for single in delivery.singles())
            found |= dict(zip(call.positions, singles, strict=True))
        for position in sorted(found):
            yield found[position]._replace(sent=self._outbox[position][1])

    def _lost(self, call: Call) -> None:
        self._pool.lose(call.actor)
        self._losses[call.positions] += 1
        if self._losses[call.positions] == LOSSES:
            names = ", ".join(str(self._cohort.ids[position]) for position in call.positions[:5])
            raise StageError(
                f"{self._work.verb} of client {names} failed in round {self._work.round + 1}: "
                f"{LOSSES} actors died with it, perhaps because memory ran out"
            )


def connect(address: str, count: int) -> tuple[Any, bool]:
    """Ray, connected to the cluster at that address, and whether a cluster was started here instead."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "200")
    try:
        import ray
    except ImportError:
        raise SpecError('engine ray needs Ray; install it with: pip install "shoal[ray]"') from None
    if ray.is_initialized():
        return ray, False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            # "local": never another user's cluster on this machine
            ray.init(address="local", num_cpus=count or None, include_dashboard=False, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).split("\n")[0]
        raise SpecError(
            f"engine.address = {address!r}: {reason}; start a cluster with `ray start --head`, or leave the "
            "address out for one on this machine"
        ) from None
    return ray, not address
