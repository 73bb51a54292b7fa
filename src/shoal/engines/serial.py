"""One client after another, in this process: the reference that every other way must equal."""

from __future__ import annotations

import time
from collections.abc import Iterator

from shoal.core.engine import TRAINING, ClientSide, Delivery, Outbox, Work
from shoal.core.key import Key
from shoal.core.types import Cohort, Context, Tree
from shoal.engines.memory import MemoryStore


class Serial:
    """Visits clients in turn."""

    def __init__(self, side: ClientSide, store: MemoryStore) -> None:
        self._side, self._store = side, store

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""
        outbox = Outbox(self._side.codec, cohort, message, key)
        for position, client in enumerate(cohort.ids):
            started = time.perf_counter()
            packet, sent, down = outbox[position]
            context = Context(work.round, work.leg, cohort.setting(position), key.fold("client", client))
            memory = self._store.read(client, work.accepted.get(client)) or self._side.fresh()
            kept, answer = self._side.visit(work.verb, client, memory, packet, context)
            if work.verb in TRAINING and self._side.remembers:
                self._store.write(client, work.accepted.get(client), (work.round, work.leg), kept)
            seconds = time.perf_counter() - started
            reply = self._side.read(work.verb, answer)
            yield Delivery((client,), sent, reply, "", down, answer.nbytes, seconds)

    def close(self) -> None:
        """Nothing to end."""
