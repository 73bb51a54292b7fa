"""The values that flow through a round. `method.py` says which function takes and returns which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import Tensor

from shoal.core.key import Key

Tree = Any  # nested dicts, tuples, lists and NamedTuples of tensors and scalars
State = Any  # the server's state, of a method or selector
Memory = Any  # the memory of one client
Acc = Any  # the accumulator of a fold: the aggregate so far
Setting = Mapping[str, Any]  # what a client gets in addition to its message, e.g. {"bits": 8}
Metrics = Mapping[str, Any]
Version = tuple[int, int]  # (round, leg) of the exchange that produced a client's memory


class Report(NamedTuple):
    """A client's report on its device at the beginning of a round."""

    compute: float  # seconds of its local work, in float32
    down: float  # bytes per second
    up: float
    latency: float  # seconds per message
    total: float  # seconds until its reply, if the model travels both ways in float32


class Weights(NamedTuple):
    """A model: its parameters and its buffers."""

    params: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]


class Cohort(NamedTuple):
    """The clients that take part in an exchange. Values of `settings` are sequences aligned with `ids`."""

    ids: tuple[int, ...]
    settings: Mapping[str, Sequence[Any]]
    population: int

    def setting(self, position: int) -> Setting:
        """The setting of the client at `position`."""
        return {name: values[position] for name, values in self.settings.items()}

    @property
    def draws(self) -> Mapping[int, int]:
        """How often each client was drawn; clients that are not listed were drawn once."""
        counts = self.settings.get("count")
        return {} if counts is None else dict(zip(self.ids, counts, strict=True))

    def take(self, positions: Sequence[int]) -> Cohort:
        """The cohort with the members at these positions, in this order."""
        if not self.settings and len(positions) == len(self.ids) and positions == list(range(len(self.ids))):
            return self
        settings = {name: tuple(values[i] for i in positions) for name, values in self.settings.items()}
        return Cohort(tuple(self.ids[i] for i in positions), settings, self.population)


class PerClient(NamedTuple):
    """A field that differs between clients: one row per member of the cohort, computed on access."""

    rows: Sequence[Tree]
    like: Tree = None  # an example with the shapes of every row, if computing a row takes time

    def some(self, positions: Sequence[int]) -> PerClient:
        """The rows at these positions."""
        return self._replace(rows=_Some(self.rows, positions))


class Moment(NamedTuple):
    """What a server function gets in addition to its state: the round, the leg and its random key.

    `dispatch` and `finish` of a leg get the same moment. Rounds and legs are counted from 0.
    """

    round: int
    leg: int
    last: bool  # whether this is the last leg of the round
    key: Key
    reports: Mapping[int, Report] = MappingProxyType({})  # for `legs` only: of all clients, if asked for


class Context(NamedTuple):
    """What a client function gets in addition to its message, with the key for all its random numbers."""

    round: int
    leg: int
    setting: Setting
    key: Key


class Reply(NamedTuple):
    """A client's reply. After training, its payload has a field `update` = trained - sent weights."""

    payload: Tree
    weight: Tensor | None  # [] float64: the number of samples it is based on
    metrics: Mapping[str, Tensor]  # scalars; their means over the cohort are recorded as `clients.NAME`


class ModelMessage(NamedTuple):
    """The message of methods that send a model and nothing else."""

    model: Weights | PerClient


class ModelUpdate(NamedTuple):
    """The payload of methods that return an update and nothing else."""

    update: Weights


def message_for(message: Tree, position: int) -> Tree:
    """The message that the client at `position` of the cohort gets."""
    if not any(isinstance(field, PerClient) for field in message):
        return message
    fields = (field.rows[position] if isinstance(field, PerClient) else field for field in message)
    return type(message)(*fields)


class _Some(Sequence[Tree]):
    """Some rows of a `PerClient`, still computed on access."""

    def __init__(self, rows: Sequence[Tree], positions: Sequence[int]) -> None:
        self._rows, self._positions = rows, positions

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, position: Any) -> Tree:
        return self._rows[self._positions[position]]


def message_part(message: Tree, positions: Sequence[int]) -> Tree:
    """The message for the members of the cohort at these positions."""
    if not any(isinstance(field, PerClient) for field in message):
        return message
    fields = (field.some(positions) if isinstance(field, PerClient) else field for field in message)
    return type(message)(*fields)
