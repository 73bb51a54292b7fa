"""The local engine in its plain form: one client after another, in this process.

The reference that other engines must equal, and the one to debug with.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from shoal.core.data import Shards
from shoal.core.engine import ClientSide, Delivery, Engine, Memory, Outbox, Work
from shoal.core.key import Key
from shoal.core.selector import Population
from shoal.core.types import Cohort, Context, Tree, Version
from shoal.engines.memory import MemoryStore


class LocalEngine(Engine):
    """Visits clients in turn."""

    def __init__(self, side: ClientSide, shards: Shards) -> None:
        self._side, self._shards, self._store = side, shards, MemoryStore()

    def clients(self, round: int) -> Population:
        """See `Engine`."""
        return range(len(self._shards))

    def samples(self, client: int) -> int:
        """See `Engine`."""
        return self._shards.count(client)

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""
        outbox = Outbox(self._side.codec, cohort, message, key)
        for position, client in enumerate(cohort.ids):
            started = time.perf_counter()
            packet, sent, down = outbox[position]
            context = Context(work.round, work.leg, cohort.setting(position), key.fold("client", client))
            accepted = work.accepted.get(client)
            memory = self.memory(client, accepted)
            kept, answer = self._side.visit(work.verb, client, memory, packet, context)
            if work.verb == "update" and self._side.remembers:
                self._store.write(client, accepted, (work.round, work.leg), kept)
            seconds = time.perf_counter() - started
            yield Delivery(client, sent, self._side.read(answer), "", down, answer.nbytes, seconds)

    def memory(self, client: int, version: Version | None) -> Memory:
        """See `Engine`."""
        return self._side.fresh() if version is None else self._store.read(client, version)

    def restore(self, client: int, version: Version, memory: Memory) -> None:
        """See `Engine`."""
        self._store.restore(client, version, memory)
