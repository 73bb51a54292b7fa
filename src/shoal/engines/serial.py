"""One client after another, in this process: the reference that every other mode must reproduce."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.core.client import ClientSide, Visit
from shoal.core.engine import TRAINING, Delivery, Work
from shoal.core.key import Key
from shoal.core.outbox import Outbox
from shoal.core.types import Cohort, Context, Tree
from shoal.engines.client_memory import MemoryStore


class Serial:
    """Runs clients one after another."""

    def __init__(self, side: ClientSide, store: MemoryStore) -> None:
        self._side, self._store = side, store

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""
        outbox = Outbox(self._side.codec, cohort, message, key)
        for position, client in enumerate(cohort.ids):
            packet, sent, down = outbox[position]
            context = Context(work.round, work.leg, cohort.setting(position), key.fold("client", client))
            memory = self._store.read(client, work.accepted.get(client)) or self._side.fresh
            visit = self._side.visit(work.verb, client, memory, packet, context)
            yield delivered(self._side, self._store, work, client, sent, visit, down)

    def close(self) -> None:
        """Nothing to release."""


def delivered(
    side: ClientSide,
    store: MemoryStore,
    work: Work,
    client: int,
    sent: Tree,
    visit: Visit,
    down: int,
) -> Delivery:
    """The server's view of one client's result; stores the client's new memory."""
    if visit.answer is None:
        return Delivery((client,), work.version, sent, None, visit.reason, down, 0)
    if work.verb in TRAINING and side.remembers:
        store.write(client, work.accepted.get(client), work.version, visit.memory)
    reply, reason = side.read(work.verb, visit.answer)
    length = visit.answer.nbytes
    return Delivery((client,), work.version, sent, reply, reason, down, length, checked=visit.checked)
