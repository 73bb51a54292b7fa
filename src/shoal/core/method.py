"""The protocol of a method: the server and client halves of a federated algorithm, as pure functions.

A method is a frozen dataclass of hyper-parameters. The server's `State` and a client's `Memory` are passed in
and returned; nothing else is kept between calls. A round is

    legs -> for each leg: dispatch -> client_update, upload (at each client) -> received, fold ... -> finish

with one leg unless `legs` says otherwise. The client functions are written and run for one client.
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
    """The other parts of a run that a method may check."""

    selector: Selector
    codec: Codec
    population: int
    over_select: float = 1.0  # this many times the clients needed are asked, and the first replies count


class Method(ABC):
    """One federated algorithm: server and client."""

    selector: ClassVar[str] = ""  # the selector that it needs, used if the spec names none

    @property
    def asks_report(self) -> bool:
        """Whether clients report their speed and rates in every round."""
        return False

    def check(self, task: Task, axes: Axes) -> None:  # noqa: B027  # most methods suit every run
        """Raise `SpecError` if the method cannot work in this run; warn if one of its assumptions fails.

        The server calls it before the first round. `task.root` is set if the server holds samples of its own.
        """

    # ---- server

    @abstractmethod
    def init(self, task: Task, key: Key) -> State:
        """The state before the first round."""

    def legs(self, state: State, cohort: Cohort, moment: Moment) -> tuple[Cohort, ...]:
        """The cohort of each leg; may add settings. One leg, unless the method chains its clients.

        `moment` is that of the first leg; it contains the clients' device reports, if `asks_report`.
        """
        return (cohort,)

    def planned(self, state: State, cohort: Cohort, moment: Moment) -> Metrics:
        """Metrics that describe the legs; called with the arguments of `legs`."""
        return {}

    @abstractmethod
    def dispatch(self, task: Task, state: State, cohort: Cohort, moment: Moment) -> Tree:
        """The message: a NamedTuple whose fields are shared by all clients, or `PerClient`."""

    def expects(self, task: Task, sent: Tree) -> Mapping[str, Tree]:
        """Templates for the fields of a reply's payload, by name: trees of tensors, or of `Like`.

        A reply that does not match is refused before `fold` sees it. Fields without a template must be plain
        finite numbers, except `update`, which must match the model that was sent.
        """
        return {}

    @abstractmethod
    def begin(self, state: State, cohort: Cohort) -> Acc:
        """The empty accumulator of a leg."""

    @abstractmethod
    def fold(self, acc: Acc, client: int, sent: Tree, reply: Reply) -> Acc:
        """Add one accepted reply to the accumulator. `sent` is the message as the client decoded it."""

    def fold_block(self, acc: Acc, clients: tuple[int, ...], sent: Tree, reply: Reply) -> Acc:
        """Add the stacked replies of a block of clients; gives the same as folding them one by one.

        Called only if it is overridden in the class that overrides `fold`, or in a subclass of that.
        """
        for i, client in enumerate(clients):
            acc = self.fold(acc, client, message_for(sent, i), row(reply, i))
        return acc

    @abstractmethod
    def finish(self, task: Task, state: State, acc: Acc, moment: Moment) -> tuple[State, Metrics]:
        """The state after the leg. On the last leg it is called even if no reply was accepted."""

    def shortcut(
        self, task: Task, state: State, data: Mapping[int, Data], legs: int, threads: int
    ) -> tuple[State, Metrics] | None:
        """The state after `legs` more legs with these clients, bit for bit, without exchanging anything.

        Called by an engine that holds all data; None means that there is no shortcut. `data` is in the order
        of folding; the metrics are those of the last leg.
        """
        return None

    def admit(self, state: State, profiles: Mapping[int, Tree], moment: Moment) -> State:
        """The state after new clients joined with these profiles."""
        return state

    @abstractmethod
    def model(self, state: State) -> Weights | None:
        """The global model, or None for methods without one."""

    def models(self, state: State) -> Mapping[str, Weights]:
        """All models that the server holds, by name; the name of the global model is empty."""
        model = self.model(state)
        return {} if model is None else {"": model}

    def serve(self, state: State, cohort: Cohort) -> Tree:
        """The message from which each client builds the model that it should use."""
        return ModelMessage(self.model(state))  # type: ignore[arg-type]  # methods without one override this

    # ---- client; each function runs for one client

    @property
    def client_method(self) -> Method:
        """The method whose client functions run: this one, unless it wraps another at the server only."""
        return self

    @property
    def batching(self) -> Batching | None:
        """How a client's samples are divided into mini-batches; None for a method that does not train."""
        return None

    @property
    def passes(self) -> float:
        """A client's work in an exchange: how often it computes gradients on each of its samples."""
        return 1.0 if self.batching is None else float(self.batching.epochs)

    @property
    def remembers(self) -> bool:
        """Whether clients have a memory: True if the method overrides `client_init`."""
        return overridden(self, Method, "client_init")

    @property
    def asks_profile(self) -> bool:
        """Whether new clients are asked for a profile: True if the method overrides `profile`."""
        return overridden(self, Method, "profile")

    def client_init(self, task: Task, key: Key) -> Memory:
        """The memory of a client that has not taken part yet. `key` is the one that `init` gets."""
        return ()

    @abstractmethod
    def client_update(
        self, task: Task, memory: Memory, message: Tree, data: Data, context: Context
    ) -> tuple[Memory, Reply]:
        """Do the work of one client: from its memory and the message to its new memory and its reply."""

    def upload(self, reply: Reply, setting: Setting) -> Reply:
        """The part of the reply that is sent to the server."""
        return reply

    def received(self, reply: Reply, sent: Tree) -> Reply:
        """The inverse of `upload`, applied at the server before anything else reads the reply."""
        return reply

    def profile(self, task: Task, data: Data, key: Key) -> Tree:
        """The profile of a new client, computed at the client. If overridden, `admit` receives it."""
        return ()

    def local_model(self, memory: Memory, message: Tree) -> Weights:
        """The model that a client uses, given its memory and the message of `serve`."""
        model: Weights = message.model
        return model


def overridden(part: Any, protocol: type, name: str) -> bool:
    """Whether the class of `part` overrides a function of its protocol."""
    return getattr(type(part), name) is not getattr(protocol, name)


def folds_blocks(method: Method) -> bool:
    """Whether `fold_block` matches `fold`: it may not if a subclass has overridden `fold` alone."""
    classes = type(method).__mro__
    first = {name: next(cls for cls in classes if name in vars(cls)) for name in ("fold", "fold_block")}
    return first["fold_block"] is not Method and issubclass(first["fold_block"], first["fold"])


class Recipe(ABC):
    """A method that is defined as another method with some of its slots filled."""

    selector: ClassVar[str] = ""  # see `Method`

    @property
    def asks_report(self) -> bool:
        """See `Method`."""
        return self.method().asks_report

    @abstractmethod
    def method(self) -> Method:
        """The method that this recipe stands for."""


class Gather(NamedTuple):
    """The accumulator of methods that need all replies at once."""

    replies: tuple[tuple[int, Tree, Reply], ...] = ()

    def add(self, client: int, sent: Tree, reply: Reply) -> Gather:
        """The accumulator with one more reply."""
        return Gather((*self.replies, (client, sent, reply)))
