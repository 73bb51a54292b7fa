"""A client's half of every exchange. Engines differ only in how they reach it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from shoal.core.attack import Attack
from shoal.core.codec import Codec, Packet
from shoal.core.data import Batch, Batching, Block, Data
from shoal.core.engine import Memory, Verb, stage
from shoal.core.errors import DeclinedError, SpecError
from shoal.core.key import Key
from shoal.core.method import Method
from shoal.core.privacy import Privacy
from shoal.core.selector import Selector
from shoal.core.task import Task
from shoal.core.types import Context, Reply, Tree

Work = TypeVar("Work")

FEWEST_FOR_BATCH_NORM = 2  # samples: one has no variance


class ClientData(ABC):
    """What data clients hold; on a network a client knows its own only."""

    @abstractmethod
    def train(self, client: int, batching: Batching | None, key: Key, *, full: bool) -> Data:
        """Its training samples, with a schedule drawn from the key."""

    @abstractmethod
    def block(self, clients: Sequence[int], batching: Batching, words: np.ndarray) -> Block:
        """Those of several clients, each with the schedule that the words of its key give."""

    @abstractmethod
    def test(self, client: int) -> Data:
        """The test samples that its own model is judged on."""

    @abstractmethod
    def common(self, client: int) -> Data:
        """Test samples of the whole federation, for methods that have no global model to judge."""


class Visit(NamedTuple):
    """What a visit to a client gives."""

    memory: Memory
    answer: Packet | None  # None: it cannot answer, for `reason`
    reason: str = ""


@dataclass(frozen=True)
class ClientSide:
    """What a client does when it is asked."""

    task: Task
    method: Method
    selector: Selector
    codec: Codec
    data: ClientData
    key: Key  # of initial values, and of what attackers draw once
    evaluator: Callable[[Task, Any, Data], Tree]  # the measures of a model on some data
    attack: Attack | None = None
    attackers: frozenset[int] = frozenset()
    privacy: Privacy | None = None
    forgiving: bool = False  # whether an error at a client is a missing reply and not the end of the run

    @property
    def remembers(self) -> bool:
        """Whether clients have a memory at all."""
        return self.method.remembers or self.codec.remembers

    @cached_property
    def fresh(self) -> Memory:
        """The memory of a client that never took part: the same for all, and made once."""
        return Memory(self.method.client_init(self.task, self.key), None)

    def attacks(self, client: int, round: int) -> bool:
        """Whether the client is not honest in this round."""
        return self.attack is not None and client in self.attackers and self.attack.active(round)

    def visit(self, verb: Verb, client: int, memory: Memory, packet: Packet, context: Context) -> Visit:
        """Do what the verb says."""
        work = {
            "update": self._update,
            "train": self._train,
            "evaluate": self._evaluate,
            "profile": self._profile,
        }[verb]
        return self.guarded(
            verb,
            client,
            memory,
            context,
            lambda: Visit(*work(client, memory, self.codec.decode(packet), context)),
        )

    def guarded(
        self, verb: Verb, client: int, memory: Memory, context: Context, work: Callable[[], Work]
    ) -> Work | Visit:
        """What the work gives, or the reason why the client has no answer."""
        try:
            with stage(verb, client, context.round):
                return work()
        except DeclinedError as reason:
            return Visit(memory, None, str(reason))
        except Exception as error:
            if not self.forgiving:
                raise
            cause = error.__cause__ or error
            return Visit(memory, None, f"{type(cause).__name__}: {cause}")

    def read(self, verb: Verb, packet: Packet) -> tuple[Reply | None, str]:
        """A reply as the server decodes it, or the reason why it cannot; only updates are encoded."""
        content: Reply = packet.content or Reply((), None, {})
        if verb != "update":
            return content, ""
        try:
            return content._replace(payload=self.codec.decode(Packet(content.payload))), ""
        except Exception as error:  # a stranger's bytes
            return None, f"it cannot be decoded: {type(error).__name__}: {error}"

    def training_data(self, client: int, context: Context) -> Data:
        """What the client trains on; an attacker may have changed it."""
        full = bool(self.task.batch_norms)
        data = self.data.train(client, self.method.batching, context.key.fold("batches"), full=full)
        needed = FEWEST_FOR_BATCH_NORM if full and self.method.batching else 1
        if data.count < needed:
            because = "; a model with BatchNorm needs two" if data.count else ""
            raise DeclinedError(f"it holds {data.count or 'no'} sample{'s' * (not data.count)}{because}")
        return self._poisoned(data, client) if self.attacks(client, context.round) else data

    def _poisoned(self, data: Data, client: int) -> Data:
        """What an attacker trains on: its samples are copied, and changed."""
        assert self.attack is not None
        x, y = self.attack.poison(Batch(*data.all), data.classes, self.key.fold("poison", client))
        return replace(data, x=x, y=y, rows=np.arange(data.count))

    def send(self, reply: Reply, coded: Tree, context: Context) -> tuple[Tree, Packet]:
        """From a reply, honest or not, to what travels; and what the codec remembers, given what it did."""
        if self.privacy is not None:
            reply = self.privacy.protect(reply, context.key.fold("privacy"))
        reply = self.method.upload(reply, context.setting)
        packet, coded = self.codec.encode(
            reply.payload, setting=context.setting, key=context.key.fold("codec"), memory=coded
        )
        return coded, Packet(reply._replace(payload=packet.content))

    def answer(
        self, client: int, kept: Tree, reply: Reply, memory: Memory, context: Context
    ) -> tuple[Memory, Packet]:
        """What a client that has done its work remembers, and what it sends."""
        if self.attacks(client, context.round):
            assert self.attack is not None
            if self.attack.knows != "own":
                raise SpecError("[attack] this attack needs attackers in one place; run it on engine local")
            reply = self.attack.lie_alone(reply, context)
        coded, packet = self.send(reply, memory.codec, context)
        return Memory(kept, coded), packet

    def _train(self, client: int, memory: Memory, message: Tree, context: Context) -> tuple[Memory, Packet]:
        data = self.training_data(client, context)
        kept, reply = self.method.client_update(self.task, memory.method, message, data, context)
        return Memory(kept, memory.codec), Packet(reply)

    def _update(self, client: int, memory: Memory, message: Tree, context: Context) -> tuple[Memory, Packet]:
        kept, packet = self._train(client, memory, message, context)
        return self.answer(client, kept.method, packet.content, memory, context)

    def _evaluate(
        self, client: int, memory: Memory, message: Tree, context: Context
    ) -> tuple[Memory, Packet]:
        model = self.method.local_model(memory.method, message)
        judged = {"own": self.evaluator(self.task, model, self.data.test(client))}
        if context.setting["common"]:
            judged["common"] = self.evaluator(self.task, model, self.data.common(client))
        return memory, Packet(Reply(judged, None, {}))

    def _profile(self, client: int, memory: Memory, message: Tree, context: Context) -> tuple[Memory, Packet]:
        data = self.data.train(client, None, context.key, full=False)
        payload = {
            "method": self.method.profile(self.task, data, context.key) if self.method.asks_profile else (),
            "selector": self.selector.profile(data) if self.selector.asks_profile else (),
        }
        return memory, Packet(Reply(payload, None, {}))
