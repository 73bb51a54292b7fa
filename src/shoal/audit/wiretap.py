"""Run the first round of a federation, and record everything that its server receives.

The uploads are not imitated: the method, the codec and the privacy mechanism of the spec work as in any run,
so that the audit reads the actual uploads, even of methods that it knows nothing about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from shoal.core.client import ClientSide
from shoal.core.data import Data
from shoal.core.engine import Delivery, Engine, Work
from shoal.core.key import Key
from shoal.core.population import Population
from shoal.core.training import Training, in_courses
from shoal.core.tree import tensors
from shoal.core.types import Cohort, Context, Reply, Report, Tree, Weights
from shoal.loop import advance, start
from shoal.runs.build import Setup
from shoal.runs.runner import closing
from shoal.spec import Spec


class Upload(NamedTuple):
    """A reply of one client, as the server reads it."""

    sent: Tree  # the message that it answers
    reply: Reply | None  # decoded and restored; None if there is no reply
    reason: str  # why there is no reply
    bytes_up: int
    start: Weights | None  # the weights from which the client trained; None if it does not train

    @property
    def payload(self) -> Tree:
        """The content of the reply."""
        return () if self.reply is None else self.reply.payload

    @property
    def fields(self) -> list[str]:
        """The names of the payload's fields that are not empty."""
        return [name for name in getattr(self.payload, "_fields", ()) if tensors(getattr(self.payload, name))]

    @property
    def update(self) -> dict[str, Tensor]:
        """The uploaded tensors of the update, in float64; empty if the reply has no update."""
        if "update" not in self.fields:
            return {}
        return {name: value.double() for name, value in self.payload.update.params.items()}


class Victim(NamedTuple):
    """A client, its data, and what the server received from it."""

    client: int
    data: Data
    uploads: Sequence[Upload]  # one per leg in which it took part
    profile: Tree  # its profile from before the first round; empty if none was requested

    @property
    def replied(self) -> bool:
        """Whether it took part, and the server could decode everything that it sent."""
        return bool(self.uploads) and all(upload.reply is not None for upload in self.uploads)


class Wiretap(Engine):
    """An engine that keeps a copy of everything it receives."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.heard: list[tuple[Work, Cohort, Delivery]] = []

    def clients(self, round: int) -> Population:
        """See `Engine`."""
        return self._engine.clients(round)

    def reports(self, round: int) -> Mapping[int, Report]:
        """See `Engine`."""
        return self._engine.reports(round)

    def samples(self, clients: Sequence[int]) -> Sequence[int]:
        """See `Engine`."""
        return self._engine.samples(clients)

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""
        for delivery in self._engine.exchange(work, cohort, message, key):
            self.heard += [(work, cohort, single) for single in delivery.singles()]
            yield delivery

    def close(self) -> None:
        """See `Engine`."""
        self._engine.close()


def first_round(spec: Spec) -> tuple[Setup, list[Victim]]:
    """Run the first round of a spec; returns the federation, and what its server received per client."""
    alone = replace(spec, engine=replace(spec.engine, mode="serial", workers=1))
    with closing(alone) as setup:
        tap = Wiretap(setup.federation.engine)
        federation = replace(setup.federation, engine=tap)
        advance(federation, start(federation))
        heard = tap.heard
    found = []
    for client in range(len(setup.shards)):
        mine = [entry for entry in heard if entry[2].clients == (client,)]
        uploads = [_upload(setup.side, *entry) for entry in mine if entry[0].verb == "update"]
        told = [entry[2].reply for entry in mine if entry[0].verb == "profile"]
        profile = told[0].payload["method"] if told and told[0] is not None else ()
        data = setup.side.data.train(client, None, setup.side.key, full=False)
        found.append(Victim(client, data, uploads, profile))
    return setup, found


def _upload(side: ClientSide, work: Work, cohort: Cohort, delivery: Delivery) -> Upload:
    reply = delivery.reply
    if reply is not None:
        reply = side.method.received(reply, delivery.sent)
    context = Context(work.round, work.leg, cohort.setting(cohort.ids.index(delivery.clients[0])), side.key)
    begun = None if reply is None else _training_start(side, delivery, context)
    return Upload(delivery.sent, reply, delivery.reason, delivery.bytes_up, begun)


def _training_start(side: ClientSide, delivery: Delivery, context: Context) -> Weights | None:
    """The weights from which the client started, obtained by calling the method again."""
    method = side.method.client_method
    if not isinstance(method, Training):
        return None
    if not in_courses(method):
        sent: Weights = delivery.sent.model
        return sent
    data = side.training_data(delivery.clients[0], context)
    course = method.client_training(side.task, side.fresh.method, delivery.sent, data, context)
    begun = next(course).weights
    course.close()
    return begun
