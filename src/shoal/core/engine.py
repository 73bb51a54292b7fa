"""The protocol of an engine: where clients run, and how their replies come back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol

from shoal.core.devices import Spent
from shoal.core.errors import DeclinedError, SpecError, StageError
from shoal.core.key import Key
from shoal.core.population import Population
from shoal.core.tree import row, rows_between
from shoal.core.types import Cohort, Metrics, Reply, Report, State, Tree, Version, message_for, message_part

# `train` is an update up to the honest reply: the part that colluding attackers do independently
Verb = Literal["update", "train", "evaluate", "profile"]
TRAINING: frozenset[Verb] = frozenset({"update", "train"})  # the exchanges that change clients' memories


class Work(NamedTuple):
    """What an exchange asks for, its round and leg, and the version of each client's last accepted memory."""

    verb: Verb
    round: int
    leg: int
    accepted: Mapping[int, Version]

    @property
    def version(self) -> Version:
        """The version of the memories that this exchange produces."""
        return (self.round, self.leg)


class Delivery(NamedTuple):
    """The reply of one client, or the stacked replies of a block of clients.

    In a block, every tensor of the reply has a leading client axis, and fields of `sent` may be `PerClient`.
    """

    clients: tuple[int, ...]
    version: Version  # the exchange that it answers
    sent: Tree  # the message as the clients decoded it
    reply: Reply | None  # None: there is no usable reply, see `reason`
    reason: str  # why the client is refused, whether or not it replied; empty if it is not
    bytes_down: int
    bytes_up: int
    spent: tuple[Spent, ...] = ()  # virtual time, one entry per client; empty if devices are not simulated
    stacked: bool = False
    checked: tuple[Tree, ...] = ()  # fields of the reply's payload whose numbers were already checked

    def singles(self) -> Iterator[Delivery]:
        """One delivery per client."""
        if not self.stacked:
            yield self
            return
        for i in range(len(self.clients)):
            part = self.cut(i, i + 1)
            yield part._replace(sent=message_for(part.sent, 0), reply=row(part.reply, 0), stacked=False)

    def cut(self, first: int, last: int) -> Delivery:
        """The part of a block with the clients `first` to `last` (exclusive)."""
        count = len(self.clients)
        if last - first == count:
            return self
        return self._replace(
            clients=self.clients[first:last],
            sent=message_part(self.sent, range(first, last)),
            reply=rows_between(self.reply, first, last),
            bytes_down=self.bytes_down // count * (last - first),
            bytes_up=self.bytes_up // count * (last - first),
            spent=self.spent[first:last],
        )


class Walk(Protocol):
    """The legs of a round, run one after another; see `loop.py`."""

    @property
    def legs(self) -> tuple[Cohort, ...]:
        """The cohort of each leg."""

    @property
    def state(self) -> State:
        """The current server state."""

    @property
    def complete(self) -> bool:
        """Whether all replies so far were accepted, and those to come will arrive."""

    def step(self) -> None:
        """Run the next leg."""

    def arrive(self, state: State, metrics: Metrics) -> None:
        """Jump to the end of the round; each skipped leg is counted with the bytes of the last one run."""


class Engine(ABC):
    """Brings messages to clients and their replies back."""

    @abstractmethod
    def clients(self, round: int) -> Population:
        """The clients that can be reached in this round."""

    def reports(self, round: int) -> Mapping[int, Report]:
        """The device reports of all reachable clients in this round; empty if there are none."""
        return {}

    @abstractmethod
    def samples(self, clients: Sequence[int]) -> Sequence[int]:
        """The number of samples that each client has declared."""

    @abstractmethod
    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """The replies of the cohort's members, in the order of the cohort."""

    def walk(self, walk: Walk) -> None:
        """Run all legs of a round; an engine that knows a shortcut with the same result may take it."""
        for _ in walk.legs:
            walk.step()

    def memory(self, client: int, version: Version | None) -> Memory | None:
        """A client's memory of that version (None: a fresh one); returns None if clients keep their own."""
        return None

    def restore(self, client: int, version: Version, memory: Memory) -> None:  # noqa: B027
        """Restore a memory that `memory` returned."""

    @abstractmethod
    def close(self) -> None:
        """Release the engine's resources: processes and shared memory."""


class Memory(NamedTuple):
    """What a client keeps between exchanges."""

    method: Tree
    codec: Any


class Stage:  # `contextlib.contextmanager` would take four times as long, several times per client
    """A context manager: errors raised in its block name the stage, the client and the round."""

    __slots__ = ("_client", "_name", "_round")

    def __init__(self, name: str, client: int | None, round: int) -> None:
        self._name, self._client, self._round = name, client, round

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not isinstance(error, Exception) or isinstance(error, StageError | SpecError | DeclinedError):
            return
        whom = "" if self._client is None else f" of client {self._client}"
        where = f"{self._name}{whom} failed in round {self._round + 1}"
        raise StageError(f"{where}: {type(error).__name__}: {error}") from error
