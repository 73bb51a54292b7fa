"""The protocol of a method: both halves of a federated algorithm as pure functions.

A method is a frozen dataclass of hyper-parameters. What the server remembers is its `State`, what a client
remembers its `Memory`; both are passed in and returned, and nothing else is remembered. A round is

    legs -> for each leg: dispatch -> client_update, upload (at each client) -> received, fold ... -> finish

with one leg unless `legs` says otherwise. The client's functions are written and run for one client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from shoal.core.codec import Codec
from shoal.core.data import Batching, Data
from shoal.core.key import Key
from shoal.core.selector import Selector
from shoal.core.task import Task
from shoal.core.tree import row
from shoal.core.types import (
    Acc,
    Cohort,
    Context,
    Memory,
    Metrics,
    ModelMessage,
    Moment,
    Reply,
    Setting,
    State,
    Tree,
    Weights,
    message_for,
)


class Axes(NamedTuple):
    """What else a run is made of."""

    selector: Selector
    codec: Codec
    population: int


class Method(ABC):
    """One federated algorithm, server and client."""

    selector: ClassVar[str] = ""  # the name of the one that it needs, where a spec names none

    def check(self, task: Task, axes: Axes) -> None:  # noqa: B027  # most methods suit every run
        """Raise `SpecError` if it cannot work so, warn if something that it assumes does not hold.

        The server calls it before the first round. Its task has `root`, if the server holds samples.
        """

    # ---- server

    @abstractmethod
    def init(self, task: Task, key: Key) -> State:
        """The state before the first round."""

    def legs(self, state: State, cohort: Cohort, moment: Moment) -> tuple[Cohort, ...]:
        """The cohort of each leg; may add settings. One leg for all unless a method chains its clients.

        `moment` is that of the first leg.
        """
        return (cohort,)

    @abstractmethod
    def dispatch(self, task: Task, state: State, cohort: Cohort, moment: Moment) -> Tree:
        """The message: a NamedTuple whose fields are shared, or `PerClient`."""

    def expects(self, task: Task, sent: Tree) -> Mapping[str, Tree]:
        """What the fields of a reply's payload must be like, by name: a tree of tensors, or of `Like`.

        A reply that is not so is refused before `fold` sees it. Fields that are not named here must be plain
        finite numbers, and `update`, if there is one, like the model sent.
        """
        return {}

    @abstractmethod
    def begin(self, state: State, cohort: Cohort) -> Acc:
        """What the fold starts from."""

    @abstractmethod
    def fold(self, acc: Acc, client: int, sent: Tree, reply: Reply) -> Acc:
        """Take in one accepted reply. `sent` is the message as the client decoded it."""

    def fold_block(self, acc: Acc, clients: tuple[int, ...], sent: Tree, reply: Reply) -> Acc:
        """Take in the replies of a block of clients, stacked; the same as folding one after another."""
        for i, client in enumerate(clients):
            acc = self.fold(acc, client, message_for(sent, i), row(reply, i))
        return acc

    @abstractmethod
    def finish(self, task: Task, state: State, acc: Acc, moment: Moment) -> tuple[State, Metrics]:
        """The state after the leg. On the last leg it is called even if no reply was accepted."""

    def shortcut(
        self, task: Task, state: State, data: Mapping[int, Data], legs: int, threads: int
    ) -> tuple[State, Metrics] | None:
        """What `legs` further legs with these clients would lead to, to the bit, without exchanging anything.

        An engine that holds all data may ask for it; None says that there is no such shortcut. `data` is in
        the order of folding; the metrics are those of the last leg.
        """
        return None

    def admit(self, state: State, profiles: Mapping[int, Tree], moment: Moment) -> State:
        """Take note of newcomers and what they told of themselves."""
        return state

    @abstractmethod
    def model(self, state: State) -> Weights | None:
        """The global model, or None where there is none to speak of."""

    def models(self, state: State) -> Mapping[str, Weights]:
        """Every model that the server holds, by name; the global one has the empty name."""
        model = self.model(state)
        return {} if model is None else {"": model}

    def serve(self, state: State, cohort: Cohort) -> Tree:
        """The message from which each client makes the model that it should use."""
        return ModelMessage(self.model(state))  # type: ignore[arg-type]  # methods without one override this

    # ---- client, for one client

    @property
    def batching(self) -> Batching | None:
        """How a client's samples are dealt into batches; None for a method that does not train."""
        return None

    @property
    def remembers(self) -> bool:
        """Whether clients have a memory: those of a method that says how it begins."""
        return overridden(self, Method, "client_init")

    @property
    def asks_profile(self) -> bool:
        """Whether clients are profiled when they arrive: if the method says how."""
        return overridden(self, Method, "profile")

    def client_init(self, task: Task, key: Key) -> Memory:
        """The memory of a client that never took part. `key` is the one that `init` gets."""
        return ()

    @abstractmethod
    def client_update(
        self, task: Task, memory: Memory, message: Tree, data: Data, context: Context
    ) -> tuple[Memory, Reply]:
        """One client's work."""

    def upload(self, reply: Reply, setting: Setting) -> Reply:
        """What of the reply travels."""
        return reply

    def received(self, reply: Reply, sent: Tree) -> Reply:
        """The inverse of `upload`, at the server, before anybody else sees the reply."""
        return reply

    def profile(self, task: Task, data: Data, key: Key) -> Tree:
        """What a newcomer tells of itself. Override it, and `admit` is told."""
        return ()

    def local_model(self, memory: Memory, message: Tree) -> Weights:
        """The model that a client uses, given its memory and what `serve` sent."""
        model: Weights = message.model
        return model


def overridden(part: Any, protocol: type, name: str) -> bool:
    """Whether a part has its own version of a function of its protocol."""
    return getattr(type(part), name) is not getattr(protocol, name)


class Recipe(ABC):
    """A method that is another one with its slots filled."""

    selector: ClassVar[str] = ""  # see `Method`

    @abstractmethod
    def method(self) -> Method:
        """The method it stands for."""


class Gather(NamedTuple):
    """The accumulator of methods that must see all replies at once."""

    replies: tuple[tuple[int, Tree, Reply], ...] = ()

    def add(self, client: int, sent: Tree, reply: Reply) -> Gather:
        """With one more reply."""
        return Gather((*self.replies, (client, sent, reply)))
