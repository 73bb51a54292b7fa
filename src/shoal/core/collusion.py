"""Colluding attackers: they train first, agree on what they send, and reply in the order of the cohort.

Honest clients run in the engine's own way, just as without an attack, and their replies are passed on as they
arrive. Only the attackers' replies are held back; if attackers may see all replies, the honest ones are held
back too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from shoal.core.client import ClientSide
from shoal.core.engine import Delivery, Memory, Stage, Work
from shoal.core.key import Key
from shoal.core.types import Cohort, Context, Reply, Tree, Version, message_part


class ClientRunner(Protocol):
    """The part of an engine that runs an exchange; see `Engine`."""

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""

    def close(self) -> None:
        """Release its resources, such as processes."""


class Store(Protocol):
    """Where clients' memories are kept; see `MemoryStore`."""

    def read(self, client: int, version: Version | None) -> Memory | None:
        """The client's memory of that version."""

    def write(self, client: int, accepted: Version | None, pending: Version, memory: Memory) -> None:
        """Keep a memory until it is known whether its reply was accepted."""


class Collusion:
    """Wraps an engine's exchange so that attackers in the cohort can collude."""

    def __init__(self, side: ClientSide, runner: ClientRunner, store: Store) -> None:
        self._side, self._runner, self._store = side, runner, store

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""
        is_update = work.verb == "update"
        attackers = [
            i for i, client in enumerate(cohort.ids) if is_update and self._side.attacks(client, work.round)
        ]
        if not attackers:
            yield from self._runner.exchange(work, cohort, message, key)
            return
        members, part = cohort.take(attackers), message_part(message, attackers)
        trained = [
            single
            for delivery in self._runner.exchange(work._replace(verb="train"), members, part, key)
            for single in delivery.singles()
        ]
        attacking = set(attackers)
        honest = [i for i in range(len(cohort.ids)) if i not in attacking]
        replies: Iterator[Delivery] = iter(())
        if honest:
            replies = self._runner.exchange(work, cohort.take(honest), message_part(message, honest), key)
        seen: list[Reply] = []
        if self._knows_all:
            held = [single for delivery in replies for single in delivery.singles()]
            seen = [self._opened(delivery) for delivery in held if delivery.reply is not None]
            replies = iter(held)
        forged = self._forged_deliveries(work, members, trained, seen, len(cohort.ids), key)
        yield from _merged(replies, dict(zip(attackers, forged, strict=True)))

    def close(self) -> None:
        """Release the resources of the wrapped part of the engine."""
        self._runner.close()

    @property
    def _knows_all(self) -> bool:
        return self._side.attack is not None and self._side.attack.knows == "all"

    def _opened(self, delivery: Delivery) -> Reply:
        """An honest reply as the server will decode it."""
        assert delivery.reply is not None
        return self._side.method.received(delivery.reply, delivery.sent)

    def _forged_deliveries(
        self,
        work: Work,
        members: Cohort,
        trained: list[Delivery],
        seen: Sequence[Reply],
        cohort: int,
        key: Key,
    ) -> list[Delivery]:
        contexts = [
            Context(work.round, work.leg, members.setting(i), key.fold("client", client))
            for i, client in enumerate(members.ids)
        ]
        replied = [i for i, delivery in enumerate(trained) if delivery.reply is not None]
        with Stage("lie", None, work.round):
            own = [reply for delivery in trained if (reply := delivery.reply) is not None]
            replies = self._forged(own, [contexts[i] for i in replied], seen, cohort)
        for i, reply in zip(replied, replies, strict=True):
            trained[i] = self._delivered(work, trained[i], reply, contexts[i])
        return trained

    def _forged(
        self, own: Sequence[Reply], contexts: Sequence[Context], seen: Sequence[Reply], cohort: int
    ) -> list[Reply]:
        """The attackers' forged replies, given the honest replies that they may see."""
        attack = self._side.attack
        assert attack is not None
        if attack.knows == "own":
            return [attack.lie_alone(reply, context) for reply, context in zip(own, contexts, strict=True)]
        return attack.lie(own, contexts, [*own, *seen], cohort) if own else []

    def _delivered(self, work: Work, delivery: Delivery, reply: Reply, context: Context) -> Delivery:
        """The delivery of a forged reply: protected, encoded, and decoded by the server."""
        side, (client,) = self._side, delivery.clients
        memory = self._store.read(client, work.version) if side.remembers else None
        with Stage("update", client, work.round):
            coded, answer = side.send(reply, memory.codec if memory else None, context)
            if memory is not None and side.codec.for_direction("up").remembers:
                kept = memory._replace(codec=coded)
                self._store.write(client, work.accepted.get(client), work.version, kept)
            decoded, reason = side.read("update", answer)
            return delivery._replace(reply=decoded, reason=reason, bytes_up=answer.nbytes)


def _merged(replies: Iterator[Delivery], held: dict[int, Delivery]) -> Iterator[Delivery]:
    """Merge the held replies, by position, into the honest ones, in the order of the cohort."""
    position = 0
    while position in held:
        yield held[position]
        position += 1
    for delivery in replies:
        begin, count = 0, len(delivery.clients)
        for place in range(1, count + 1):
            position += 1
            if position in held:  # a block is split where a held reply belongs
                yield delivery.cut(begin, place)
                begin = place
            while position in held:
                yield held[position]
                position += 1
        if begin < count:
            yield delivery.cut(begin, count)
