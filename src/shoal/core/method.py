"""The protocol of a method: both halves of a federated algorithm as pure functions.

A method is a frozen dataclass of hyper-parameters. What the server remembers is its `State`, what a client
remembers its `Memory`; both are passed in and returned, and nothing else is remembered. A round is

    legs -> for each leg: dispatch -> client_update, upload (at each client) -> fold ... -> finish

with one leg unless `legs` says otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from shoal.core.data import Batching, Data
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.tree import row
from shoal.core.types import (
    Acc,
    Cohort,
    Context,
    Memory,
    Metrics,
    ModelMessage,
    Reply,
    Setting,
    State,
    Tree,
    Weights,
    message_for,
)


class Method(ABC):
    """One federated algorithm, server and client."""

    remembers: ClassVar[bool] = False  # whether clients have a memory
    keeps: ClassVar[bool] = True  # whether `fold` holds on to a reply after it has returned
    maps: ClassVar[bool] = False  # whether `client_update` runs under `vmap`: it only trains, on `data.train`
    asks_profile: ClassVar[bool] = False  # whether clients are profiled when they arrive
    needs_exact: ClassVar[str] = ""  # what a lossy codec would break, if anything
    # fields of the payload that `fold` checks itself
    may_be_nonfinite: ClassVar[frozenset[str]] = frozenset()
    takes_buffers: ClassVar[bool] = True  # whether it can learn a model with BatchNorm or other buffers
    selector: ClassVar[str] = ""  # the name of the one that it needs, where a spec names none

    def check(self, task: Task) -> None:  # noqa: B027  # most methods suit every task
        """Raise `SpecError` if this task cannot be learned so."""

    # ---- server

    @abstractmethod
    def init(self, task: Task, key: Key) -> State:
        """The state before the first round."""

    def legs(self, state: State, cohort: Cohort) -> tuple[Cohort, ...]:
        """The cohort of each leg; may add settings. One leg for all unless a method chains its clients."""
        return (cohort,)

    @abstractmethod
    def dispatch(self, task: Task, state: State, cohort: Cohort, key: Key) -> Tree:
        """The message: a NamedTuple whose fields are shared, or `PerClient`."""

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
    def finish(self, task: Task, state: State, acc: Acc, key: Key) -> tuple[State, Metrics]:
        """The state after the leg; called only if at least one reply was accepted."""

    def fused(
        self, task: Task, state: State, data: Mapping[int, Data], key: Key, legs: int
    ) -> tuple[State, Metrics] | None:
        """What `legs` further legs with these clients would lead to, to the bit, without exchanging anything.

        An engine that holds all data may ask for it; None says that there is no such shortcut. `data` is in
        the order of folding; the metrics are those of the last leg.
        """
        return None

    def admit(self, state: State, profiles: Mapping[int, Tree]) -> State:
        """Take note of newcomers and what they told of themselves."""
        return state

    @property
    def root_samples(self) -> int:
        """How many clean samples of its own the server needs; they are `task.root` in `finish`."""
        return 0

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

    # ---- client, written for one client

    @property
    def batching(self) -> Batching | None:
        """How a client's samples are dealt into batches; None for a method that does not train."""
        return None

    def client_init(self, task: Task, key: Key) -> Memory:
        """The memory of a client that never took part. `key` is the one that `init` gets."""
        return ()

    def broadcasts(self, task: Task) -> bool:
        """Whether `client_update` runs for a block of clients as it stands, by the rules of broadcasting."""
        return False

    @abstractmethod
    def client_update(
        self, task: Task, memory: Memory, message: Tree, data: Data, context: Context
    ) -> tuple[Memory, Reply]:
        """One client's work."""

    def upload(self, reply: Reply, setting: Setting) -> Reply:
        """What of the reply travels."""
        return reply

    def profile(self, task: Task, data: Data, key: Key) -> Tree:
        """What a newcomer tells of itself, if `asks_profile`."""
        return ()

    def local_model(self, memory: Memory, message: Tree) -> Weights:
        """The model that a client uses, given its memory and what `serve` sent."""
        model: Weights = message.model
        return model


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
