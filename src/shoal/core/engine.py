"""The protocol of an engine: where clients run; and the client's side of an exchange, which all share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.attack import Attack
from shoal.core.codec import Codec, Packet
from shoal.core.data import Batch, Batching, Data
from shoal.core.errors import SpecError, StageError
from shoal.core.key import Key
from shoal.core.method import Method
from shoal.core.privacy import Privacy
from shoal.core.selector import Population, Selector
from shoal.core.task import Task
from shoal.core.tree import row, tree_map
from shoal.core.types import (
    Cohort,
    Context,
    Metrics,
    PerClient,
    Reply,
    State,
    Tree,
    Version,
    message_for,
    message_part,
)

# `train` is the first half of an update, up to the honest reply: all that attackers who plot do by themselves
Verb = Literal["update", "train", "evaluate", "profile"]
TRAINING: frozenset[Verb] = frozenset({"update", "train"})  # what clients remember


class Work(NamedTuple):
    """What an exchange asks for, when, and from which version of its memory each client starts."""

    verb: Verb
    round: int
    leg: int
    accepted: Mapping[int, Version]


class Delivery(NamedTuple):
    """What came back from one client, or from a block of clients at once.

    In a block every tensor of the reply has a leading client axis, and fields of `sent` may be `PerClient`.
    """

    clients: tuple[int, ...]
    sent: Tree  # the message as the clients decoded it
    reply: Reply | None  # None: nothing usable came back, for `reason`
    reason: str
    bytes_down: int
    bytes_up: int
    seconds: float
    stacked: bool = False

    def singles(self) -> Iterator[Delivery]:
        """The same, client by client."""
        if not self.stacked:
            yield self
            return
        for i in range(len(self.clients)):
            part = self.cut(i, i + 1)
            yield part._replace(sent=message_for(part.sent, 0), reply=row(part.reply, 0), stacked=False)

    def cut(self, first: int, last: int) -> Delivery:
        """What came back from the clients `first` to `last` of a block."""
        count = len(self.clients)
        if last - first == count:
            return self
        return Delivery(
            self.clients[first:last],
            message_part(self.sent, range(first, last)),
            tree_map(lambda leaf: leaf[first:last] if isinstance(leaf, Tensor) else leaf, self.reply),
            self.reason,
            self.bytes_down // count * (last - first),
            self.bytes_up // count * (last - first),
            self.seconds / count * (last - first),
            self.stacked,
        )


class Engine(ABC):
    """Carries messages to clients and their replies back."""

    @abstractmethod
    def clients(self, round: int) -> Population:
        """The clients that can be reached in this round."""

    @abstractmethod
    def samples(self, clients: Sequence[int]) -> Sequence[int]:
        """How many samples each client holds: the order of a cohort depends on it."""

    @abstractmethod
    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """What each member of the cohort answers, in the cohort's order."""

    def fused(self, cohort: Cohort, state: State, key: Key, legs: int) -> tuple[State, Metrics] | None:
        """The state after `legs` legs with this cohort, if it can be told without exchanging anything."""
        return None

    @abstractmethod
    def memory(self, client: int, version: Version | None) -> Memory:
        """A client's memory of that version, where the engine holds it; a fresh one for None."""

    @abstractmethod
    def restore(self, client: int, version: Version, memory: Memory) -> None:
        """Put back a memory that `memory` gave."""

    @abstractmethod
    def close(self) -> None:
        """End what the engine started."""


class Memory(NamedTuple):
    """What a client keeps between exchanges."""

    method: Tree
    codec: Tree


class Holdings(ABC):
    """What data a client holds."""

    @abstractmethod
    def train(self, client: int, batching: Batching | None, key: Key, *, full: bool) -> Data:
        """Its training samples, with a schedule drawn from the key."""

    @abstractmethod
    def block(self, clients: Sequence[int], batching: Batching, words: np.ndarray, threads: int) -> Data:
        """Those of several clients, each with the schedule that the words of its key give."""

    @abstractmethod
    def test(self, client: int) -> Data:
        """The test samples that its own model is judged on."""

    @abstractmethod
    def common(self, client: int) -> Data:
        """Test samples of the whole federation, for methods that have no global model to judge."""


@dataclass(frozen=True)
class ClientSide:
    """A client's half of every exchange. Engines differ only in how they reach it."""

    task: Task
    method: Method
    selector: Selector
    codec: Codec
    holdings: Holdings
    key: Key  # of the run's initial values
    judge: Callable[[Task, Any, Data], Tree]  # the measures of a model on some data
    attack: Attack | None = None
    attackers: frozenset[int] = frozenset()
    privacy: Privacy | None = None

    @property
    def remembers(self) -> bool:
        """Whether clients have a memory at all."""
        return self.method.remembers or self.codec.remembers

    def fresh(self) -> Memory:
        """The memory of a client that never took part."""
        return Memory(self.method.client_init(self.task, self.key.fold("init")), None)

    def attacks(self, client: int, round: int) -> bool:
        """Whether the client is not honest in this round."""
        return self.attack is not None and client in self.attackers and self.attack.active(round)

    def visit(
        self, verb: Verb, client: int, memory: Memory, packet: Packet, context: Context
    ) -> tuple[Memory, Packet]:
        """Do what the verb says."""
        work = {
            "update": self._update,
            "train": self._train,
            "evaluate": self._evaluate,
            "profile": self._profile,
        }[verb]
        with stage(verb, client, context.round):
            return work(client, memory, self.codec.decode(packet), context)

    def read(self, verb: Verb, packet: Packet) -> Reply:
        """A reply as the server decodes it; only updates are encoded."""
        content: Reply = packet.content or Reply((), None, {})
        if verb != "update":
            return content
        return content._replace(payload=self.codec.decode(Packet(content.payload)))

    def poisoned(self, data: Data, clients: Sequence[int]) -> Data:
        """What attackers train on: their samples alone are copied, and changed."""
        assert self.attack is not None
        batches = [
            self.attack.poison(
                Batch(data.x[torch.from_numpy(rows)], data.y[torch.from_numpy(rows)]),
                data.classes,
                self.key.fold("poison", client),
            )
            for client, rows in zip(clients, np.split(data.rows, np.cumsum(data.counts)[:-1]), strict=True)
        ]
        x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
        return replace(data, x=x, y=y, rows=np.arange(len(data.rows)))

    def send(self, reply: Reply, coded: Tree, context: Context) -> tuple[Tree, Packet]:
        """From a reply, honest or not, to what travels; and what the codec remembers, given what it did."""
        if self.privacy is not None:
            reply = self.privacy.protect(reply, context.key.fold("privacy"))
        reply = self.method.upload(reply, context.setting)
        packet, coded = self.codec.encode(
            reply.payload, setting=context.setting, key=context.key.fold("codec"), memory=coded
        )
        return coded, Packet(reply._replace(payload=packet.content))

    def _train(self, client: int, memory: Memory, message: Tree, context: Context) -> tuple[Memory, Packet]:
        full = bool(self.task.batch_norms)
        data = self.holdings.train(client, self.method.batching, context.key.fold("batches"), full=full)
        if self.attacks(client, context.round):
            data = self.poisoned(data, (client,))
        kept, reply = self.method.client_update(self.task, memory.method, message, data, context)
        return Memory(kept, memory.codec), Packet(reply)

    def _update(self, client: int, memory: Memory, message: Tree, context: Context) -> tuple[Memory, Packet]:
        kept, packet = self._train(client, memory, message, context)
        reply = packet.content
        if self.attacks(client, context.round):
            assert self.attack is not None
            if self.attack.colludes:
                raise SpecError("[attack] this attack needs attackers in one place; run it on engine local")
            (reply,) = self.attack.lie([reply], [context], 1)
        coded, answer = self.send(reply, memory.codec, context)
        return Memory(kept.method, coded), answer

    def _evaluate(
        self, client: int, memory: Memory, message: Tree, context: Context
    ) -> tuple[Memory, Packet]:
        model = self.method.local_model(memory.method, message)
        judged = {"own": self.judge(self.task, model, self.holdings.test(client))}
        if context.setting["common"]:
            judged["common"] = self.judge(self.task, model, self.holdings.common(client))
        return memory, Packet(Reply(judged, None, {}))

    def _profile(self, client: int, memory: Memory, message: Tree, context: Context) -> tuple[Memory, Packet]:
        data = self.holdings.train(client, None, context.key, full=False)
        payload = {
            "method": self.method.profile(self.task, data, context.key) if self.method.asks_profile else (),
            "selector": self.selector.profile(data) if self.selector.asks_profile else (),
        }
        return memory, Packet(Reply(payload, None, {}))


class Outbox:
    """The packets of one message. A field that clients share is encoded once for all of equal setting."""

    def __init__(self, codec: Codec, cohort: Cohort, message: Tree, key: Key) -> None:
        self._codec, self._cohort, self._message, self._key = codec, cohort, message, key
        self._shared = not any(isinstance(field, PerClient) for field in message)
        self._made: dict[str, tuple[Packet, Tree, int]] = {}

    def __getitem__(self, position: int) -> tuple[Packet, Tree, int]:
        """The packet for the client at `position`, the message as it will decode it, and its length."""
        setting = self._cohort.setting(position) if self._cohort.settings else {}
        name = repr(sorted(setting.items())) if setting else ""
        if self._shared and name in self._made:
            return self._made[name]
        key = self._key.fold("down") if self._shared else self._key.fold("down", self._cohort.ids[position])
        packet, _ = self._codec.encode(message_for(self._message, position), setting=setting, key=key)
        made = (packet, self._codec.decode(packet), packet.nbytes)
        if self._shared:
            self._made[name] = made
        return made

    def several(self, positions: Sequence[int]) -> list[tuple[Packet, Tree, int]]:
        """The same for several clients, who share one entry where they get one message."""
        if self._shared and not self._cohort.settings:
            return [self[positions[0]]] * len(positions)
        return [self[position] for position in positions]


@contextmanager
def stage(name: str, client: int | None, round: int) -> Iterator[None]:
    """Errors from within this block say where they happened."""
    try:
        yield
    except (StageError, SpecError):
        raise
    except Exception as error:
        whom = "" if client is None else f" of client {client}"
        where = f"{name}{whom} failed in round {round + 1}"
        raise StageError(f"{where}: {type(error).__name__}: {error}") from error
