"""An engine for tests that does what a network does: everything is bytes between server and clients.

The client rebuilds its half from the spec's text, and its memory is bytes too.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace

from shoal.core.codec import Packet
from shoal.core.collusion import Collusion
from shoal.core.engine import TRAINING, Delivery, Engine, Memory
from shoal.core.outbox import Outbox
from shoal.core.serialization import from_bytes, to_bytes
from shoal.core.types import Context
from shoal.loop import Federation
from shoal.runs.build import Setup, build
from shoal.spec import Spec, dump_spec, from_table


class WireEngine(Engine):
    def __init__(self, server: Setup, text: str) -> None:
        self._server = server
        self._client = build(from_table(tomllib.loads(text))).side
        self._memories: dict[tuple[int, tuple[int, int]], bytes] = {}
        self._runner = _Visits(self)
        if self._client.attack is not None and self._client.attack.knows != "own":
            # attackers have a channel of their own
            self._runner = Collusion(self._client, self._runner, self)

    def clients(self, round):
        return self._server.federation.engine.clients(round)

    def reports(self, round):
        return self._server.federation.engine.reports(round)

    def samples(self, clients):
        return [self._server.shards.count(client) for client in clients]

    def exchange(self, work, cohort, message, key):
        return self._runner.exchange(work, cohort, message, key)

    def visits(self, work, cohort, message, key):
        outbox = Outbox(self._server.side.codec, cohort, message, key)
        answers = {}
        for position in reversed(range(len(cohort.ids))):  # replies come in any order
            client = cohort.ids[position]
            packet, sent, down = outbox[position]
            wire = bytes(packet)
            assert len(wire) == down
            context = Context(work.round, work.leg, cohort.setting(position), key.fold("client", client))
            memory = self.memory(client, work.accepted.get(client))
            visit = self._client.visit(work.verb, client, memory, Packet.from_bytes(wire), context)
            if visit.answer is None:
                answers[client] = Delivery((client,), work.version, sent, None, visit.reason, down, 0)
                continue
            kept, answer = visit.memory, visit.answer
            if work.verb in TRAINING and self._client.remembers:
                self._memories[client, (work.round, work.leg)] = to_bytes(kept)
            back = bytes(answer)
            assert len(back) == answer.nbytes
            reply, reason = self._server.side.read(work.verb, Packet.from_bytes(back))
            answers[client] = Delivery((client,), work.version, sent, reply, reason, down, len(back))
        yield from (answers[client] for client in cohort.ids)

    def memory(self, client, version) -> Memory:
        return self._client.fresh if version is None else from_bytes(self._memories[client, version])

    def read(self, client, version):
        return None if version is None else from_bytes(self._memories[client, version])

    def write(self, client, accepted, pending, memory):
        self._memories[client, pending] = to_bytes(memory)

    def close(self):
        pass

    def restore(self, client, version, memory):
        self._memories[client, version] = to_bytes(memory)


class _Visits:
    def __init__(self, engine: WireEngine) -> None:
        self.exchange = engine.visits


def over_the_wire(spec: Spec) -> Setup:
    made = build(spec)
    federation: Federation = replace(made.federation, engine=WireEngine(made, dump_spec(spec)))
    return made._replace(federation=federation)
