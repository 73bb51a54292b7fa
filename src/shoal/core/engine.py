"""The protocol of an engine: where clients run, and what comes back from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Protocol

from torch import Tensor

from shoal.core.errors import DeclinedError, SpecError, StageError
from shoal.core.key import Key
from shoal.core.selector import Population
from shoal.core.tree import row, tree_map
from shoal.core.types import Cohort, Metrics, Reply, State, Tree, Version, message_for, message_part

# `train` is the first half of an update, up to the honest reply: all that attackers who collude do alone
Verb = Literal["update", "train", "evaluate", "profile"]
TRAINING: frozenset[Verb] = frozenset({"update", "train"})  # what clients remember


class Work(NamedTuple):
    """What an exchange asks for, when, and from which version of its memory each client starts."""

    verb: Verb
    round: int
    leg: int
    accepted: Mapping[int, Version]

    @property
    def version(self) -> Version:
        """Of the memories that it makes."""
        return (self.round, self.leg)


class Delivery(NamedTuple):
    """What came back from one client, or from a block of clients at once.

    In a block every tensor of the reply has a leading client axis, and fields of `sent` may be `PerClient`.
    """

    clients: tuple[int, ...]
    version: Version  # of the exchange that it answers
    sent: Tree  # the message as the clients decoded it
    reply: Reply | None  # None: nothing usable came back, for `reason`
    reason: str  # why it is refused, with or without a reply
    bytes_down: int
    bytes_up: int
    seconds: float
    stacked: bool = False
    sound: bool = False  # whether this engine, which made it, has seen that its numbers are finite and small

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
        return self._replace(
            clients=self.clients[first:last],
            sent=message_part(self.sent, range(first, last)),
            reply=tree_map(lambda leaf: leaf[first:last] if isinstance(leaf, Tensor) else leaf, self.reply),
            bytes_down=self.bytes_down // count * (last - first),
            bytes_up=self.bytes_up // count * (last - first),
            seconds=self.seconds / count * (last - first),
        )


class Walk(Protocol):
    """The legs of a round, one after another; see `loop.py`."""

    @property
    def legs(self) -> tuple[Cohort, ...]:
        """The cohort of each leg."""

    @property
    def state(self) -> State:
        """The server's, now."""

    @property
    def complete(self) -> bool:
        """Whether all replies so far were accepted."""

    def step(self) -> None:
        """Play the next leg."""

    def arrive(self, state: State, metrics: Metrics) -> None:
        """Be at the end: what the legs left out would have sent is counted like the last leg's."""


class Engine(ABC):
    """Carries messages to clients and their replies back."""

    @abstractmethod
    def clients(self, round: int) -> Population:
        """The clients that can be reached in this round."""

    def reports(self, round: int) -> Mapping[int, Tree]:
        """What the clients that can be reached tell of themselves in this round, for the selector."""
        return {}

    @abstractmethod
    def samples(self, clients: Sequence[int]) -> Sequence[int]:
        """How many samples each client has declared to hold."""

    @abstractmethod
    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """What each member of the cohort answers, in the cohort's order."""

    def walk(self, walk: Walk) -> None:
        """Play all legs of a round; an engine that knows a shorter way to the same end may take it."""
        for _ in walk.legs:
            walk.step()

    def memory(self, client: int, version: Version | None) -> Memory | None:
        """A client's memory of that version (a fresh one for None); None where clients keep their own."""
        return None

    def restore(self, client: int, version: Version, memory: Memory) -> None:  # noqa: B027
        """Put back a memory that `memory` gave."""

    @abstractmethod
    def close(self) -> None:
        """End what the engine started."""


class Memory(NamedTuple):
    """What a client keeps between exchanges."""

    method: Tree
    codec: Any


@contextmanager
def stage(name: str, client: int | None, round: int) -> Iterator[None]:
    """Errors from within this block say where they happened."""
    try:
        yield
    except (StageError, SpecError, DeclinedError):
        raise
    except Exception as error:
        whom = "" if client is None else f" of client {client}"
        where = f"{name}{whom} failed in round {round + 1}"
        raise StageError(f"{where}: {type(error).__name__}: {error}") from error
