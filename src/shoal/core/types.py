"""The values that flow through a round. See `method.py` for who passes which to whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from shoal.core.key import Key

Tree = Any  # nested dicts, tuples, lists and NamedTuples of tensors and scalars
State = Any  # what a method's server remembers
Memory = Any  # what one client remembers
Acc = Any  # what a fold has gathered so far
Setting = Mapping[str, Any]  # what one client is told besides its message: {"bits": 8}
Metrics = Mapping[str, Any]
Version = tuple[int, int]  # (round, leg) of the exchange in which a client's memory was made


class Weights(NamedTuple):
    """A model: never just its parameters."""

    params: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]


class Cohort(NamedTuple):
    """Who takes part in an exchange. `settings` holds a sequence aligned with `ids` for each name."""

    ids: tuple[int, ...]
    settings: Mapping[str, Sequence[Any]]
    population: int

    def setting(self, position: int) -> Setting:
        """What the client at `position` is told."""
        return {name: values[position] for name, values in self.settings.items()}

    @property
    def draws(self) -> Mapping[int, int]:
        """How often each member was drawn; who is not in it, once."""
        counts = self.settings.get("count")
        return {} if counts is None else dict(zip(self.ids, counts, strict=True))

    def take(self, positions: Sequence[int]) -> Cohort:
        """The same cohort, other order or fewer members."""
        if not self.settings and len(positions) == len(self.ids) and positions == list(range(len(self.ids))):
            return self
        settings = {name: tuple(values[i] for i in positions) for name, values in self.settings.items()}
        return Cohort(tuple(self.ids[i] for i in positions), settings, self.population)


class PerClient(NamedTuple):
    """A message field that differs by client; a row for each member of the cohort, made when asked for."""

    rows: Sequence[Tree]


class Moment(NamedTuple):
    """What a server function is told besides its state: when it is, and the source of its randomness.

    `dispatch` and `finish` of a leg are told the same one. Rounds and legs are counted from 0.
    """

    round: int
    leg: int
    last: bool  # whether this is the last leg of the round
    key: Key


class Context(NamedTuple):
    """What a client is told besides its message, and the source of all its randomness."""

    round: int
    leg: int
    setting: Setting
    key: Key


class Reply(NamedTuple):
    """What a client answers. A training reply's payload has a field `update` = trained - sent weights."""

    payload: Tree
    weight: Tensor | None  # [] float64: the number of samples behind it
    metrics: Mapping[str, Tensor]  # scalars; their means over the cohort are recorded as `clients.NAME`


class ModelMessage(NamedTuple):
    """The message of every method that sends a model and nothing else."""

    model: Weights | PerClient


class ModelUpdate(NamedTuple):
    """The payload of every method that returns an update and nothing else."""

    update: Weights


def message_for(message: Tree, position: int) -> Tree:
    """The message as the client at `position` of the cohort gets it."""
    if not any(isinstance(field, PerClient) for field in message):
        return message
    fields = (field.rows[position] if isinstance(field, PerClient) else field for field in message)
    return type(message)(*fields)


class _Some(Sequence[Tree]):
    """Some of the rows of a `PerClient`, still made when asked for."""

    def __init__(self, rows: Sequence[Tree], positions: Sequence[int]) -> None:
        self._rows, self._positions = rows, positions

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, position: Any) -> Tree:
        return self._rows[self._positions[position]]


def message_part(message: Tree, positions: Sequence[int]) -> Tree:
    """The message as it goes to some members of the cohort."""
    if not any(isinstance(field, PerClient) for field in message):
        return message
    fields = (
        PerClient(_Some(field.rows, positions)) if isinstance(field, PerClient) else field
        for field in message
    )
    return type(message)(*fields)
