"""The client's half of every exchange. Engines differ only in how they reach a client."""

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
from shoal.core.engine import Memory, Stage, Verb
from shoal.core.errors import DeclinedError, SpecError
from shoal.core.key import Key
from shoal.core.method import Method
from shoal.core.privacy import Privacy
from shoal.core.selector import Selector
from shoal.core.task import Task
from shoal.core.training import solver_of
from shoal.core.types import Context, Reply, Tree, Weights

Work = TypeVar("Work")

FEWEST_FOR_BATCH_NORM = 2  # samples: a single one has no variance


class ClientData(ABC):
    """The clients' data; in a networked federation, a client has access only to its own."""

    @abstractmethod
    def train(self, client: int, batching: Batching | None, key: Key, *, full: bool) -> Data:
        """The client's training samples, with a schedule of mini-batches drawn from the key."""

    def several(
        self, clients: Sequence[int], batching: Batching | None, words: np.ndarray, *, full: bool
    ) -> list[Data]:
        """`train` for several clients; `words` [clients, 2] are the words of their keys."""
        keys = [Key((first, second)) for first, second in words.tolist()]
        return [self.train(client, batching, key, full=full) for client, key in zip(clients, keys)]

    @abstractmethod
    def block(self, clients: Sequence[int], batching: Batching, words: np.ndarray) -> Block:
        """The training samples of several clients; `words` are those of the keys for their schedules."""

    @abstractmethod
    def test(self, client: int) -> Data:
        """The test samples on which the client's own model is evaluated."""

    @abstractmethod
    def common(self, client: int) -> Data:
        """Test samples of the whole federation, for methods without a global model to evaluate."""


class Visit(NamedTuple):
    """The result of one exchange with a client: its new memory and its answer."""

    memory: Memory
    answer: Packet | None  # None: it cannot answer, see `reason`
    reason: str = ""
    checked: tuple[Tree, ...] = ()  # results of the solver whose numbers it has already checked


def read_reply(codec: Codec, verb: Verb, packet: Packet) -> tuple[Reply | None, str]:
    """The reply as the server decodes it, or why it cannot be decoded; only updates are encoded."""
    content: Reply = packet.content or Reply((), None, {})
    if verb != "update":
        return content, ""
    try:
        return content._replace(payload=codec.for_direction("up").decode(Packet(content.payload))), ""
    except Exception as error:  # the bytes are untrusted and may be anything
        return None, f"it cannot be decoded: {type(error).__name__}: {error}"


@dataclass(frozen=True)
class ClientSide:
    """Everything that runs on a client."""

    task: Task
    method: Method
    selector: Selector
    codec: Codec
    data: ClientData
    key: Key  # for initial values, and for the random numbers that attackers draw once per run
    evaluator: Callable[[Task, Any, Data], Tree]  # computes the metrics of a model on some data
    attack: Attack | None = None
    attackers: frozenset[int] = frozenset()
    privacy: Privacy | None = None
    tolerates_errors: bool = False  # an error on a client costs its reply and does not end the run

    @property
    def remembers(self) -> bool:
        """Whether clients have a memory."""
        return self.method.remembers or self.codec.for_direction("up").remembers

    @cached_property
    def fresh(self) -> Memory:
        """The memory of a client that has not taken part yet; the same for all clients."""
        return Memory(self.method.client_init(self.task, self.key), None)

    def attacks(self, client: int, round: int) -> bool:
        """Whether the client attacks in this round."""
        return self.attack is not None and client in self.attackers and self.attack.active(round)

    def visit(self, verb: Verb, client: int, memory: Memory, packet: Packet, context: Context) -> Visit:
        """Run the exchange named by the verb."""
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
            lambda: Visit(*work(client, memory, self.codec.for_direction("down").decode(packet), context)),
        )

    def guarded(
        self, verb: Verb, client: int, memory: Memory, context: Context, work: Callable[[], Work]
    ) -> Work | Visit:
        """The result of `work`, or a `Visit` with the reason why the client cannot answer."""
        try:
            with Stage(verb, client, context.round):
                return work()
        except DeclinedError as reason:
            return Visit(memory, None, str(reason))
        except Exception as error:
            if not self.tolerates_errors:
                raise
            cause = error.__cause__ or error
            return Visit(memory, None, f"{type(cause).__name__}: {cause}")

    def read(self, verb: Verb, packet: Packet) -> tuple[Reply | None, str]:
        """See `read_reply`."""
        return read_reply(self.codec, verb, packet)

    def scheduled(self, clients: Sequence[int], key: Key) -> list[Data]:
        """The samples of several clients, with their schedules; `key` is the exchange's key."""
        words = key.fold_many("client", np.array(clients), "batches")
        return self.data.several(clients, self.method.batching, words, full=bool(self.task.batch_norms))

    def training_data(self, client: int, context: Context, data: Data | None = None) -> Data:
        """The samples that the client trains on: `data`, or else those scheduled; poisoned if it attacks."""
        data = self._scheduled(client, self.method.batching, context) if data is None else data
        if data.count < (self._fewest if self.method.batching else 1):
            because = "; a model with BatchNorm needs two" if data.count else ""
            raise DeclinedError(f"it holds {data.count or 'no'} sample{'s' * (not data.count)}{because}")
        return self._poisoned(data, client) if self.attacks(client, context.round) else data

    @property
    def _fewest(self) -> int:
        """The minimum number of samples that a client needs to train."""
        return FEWEST_FOR_BATCH_NORM if self.task.batch_norms else 1

    def _scheduled(self, client: int, batching: Batching | None, context: Context) -> Data:
        key, full = context.key.fold("batches"), bool(self.task.batch_norms)
        return self.data.train(client, batching, key, full=full)

    def _poisoned(self, data: Data, client: int) -> Data:
        """An attacker's training samples: a changed copy of its own."""
        assert self.attack is not None
        x, y = self.attack.poison(Batch(*data.all), data.classes, self.key.fold("poison", client))
        return replace(data, x=x, y=y, rows=np.arange(data.count))

    def send(self, reply: Reply, coded: Tree, context: Context) -> tuple[Tree, Packet]:
        """Protect and encode a reply. Takes the codec's last memory; returns its new one and the packet."""
        if self.privacy is not None:
            reply = self.privacy.protect(reply, context.key.fold("privacy"))
        reply = self.method.upload(reply, context.setting)
        packet, coded = self.codec.for_direction("up").encode(
            reply.payload, setting=context.setting, key=context.key.fold("codec"), memory=coded
        )
        return coded, Packet(reply._replace(payload=packet.content))

    def answer(
        self, client: int, kept: Tree, reply: Reply, memory: Memory, context: Context
    ) -> tuple[Memory, Packet]:
        """A client's new memory and the packet that it sends when its work is done."""
        if self.attacks(client, context.round):
            assert self.attack is not None
            if self.attack.knows != "own":
                raise SpecError("[attack] colluding attackers must run in one place; run it on engine local")
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
        own = self.data.test(client)
        if not own.count:
            raise DeclinedError("it holds no samples to be evaluated on")
        model = self._finetuned(client, self.method.local_model(memory.method, message), context)
        evaluated = {"own": self.evaluator(self.task, model, own)}
        if context.setting["common"]:
            evaluated["common"] = self.evaluator(self.task, model, self.data.common(client))
        return memory, Packet(Reply(evaluated, None, {}))

    def _finetuned(self, client: int, model: Weights, context: Context) -> Weights:
        """The model after as many local epochs on the client's own samples as the setting asks for."""
        solver, epochs = solver_of(self.method), context.setting["finetune"]
        if not epochs or solver is None:
            return model
        data = self._scheduled(client, solver.batching._replace(epochs=epochs), context)
        if data.count < self._fewest:  # too few samples to train: it uses the model as it is
            return model
        return solver.train(self.task, model, data, context).weights

    def _profile(self, client: int, memory: Memory, message: Tree, context: Context) -> tuple[Memory, Packet]:
        data = self.data.train(client, None, context.key, full=False)
        if not data.count and self.method.asks_profile:
            raise DeclinedError("it holds no samples to make a profile from")
        payload = {
            "method": self.method.profile(self.task, data, context.key) if self.method.asks_profile else (),
            "selector": self.selector.profile(data) if self.selector.asks_profile else (),
        }
        return memory, Packet(Reply(payload, None, {}))
