"""Aggregators: how a server turns its clients' updates into the next model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from shoal.core.types import Acc, Cohort, Metrics, Reply, Weights

Weighting = Literal["samples", "uniform"]


def client_weight(weighting: Weighting, reply: Reply) -> float:
    """How much a reply counts: by the samples behind it, or as one of many."""
    return 1.0 if weighting == "uniform" or reply.weight is None else float(reply.weight)


class WeightedSum(NamedTuple):
    """`sum_i a_i x_i` over trees of floating tensors, in float64, folded one by one."""

    values: Mapping[str, Tensor]  # empty before the first
    total: float

    @classmethod
    def empty(cls) -> WeightedSum:
        """Nothing summed yet."""
        return cls({}, 0.0)

    def add(self, values: Mapping[str, Tensor], weight: float) -> WeightedSum:
        """With one more summand. The sum so far is updated in place: it belongs to the fold alone."""
        if not self.values:
            return WeightedSum({name: weight * v.double() for name, v in values.items()}, self.total + weight)
        for name, value in values.items():
            self.values[name].add_(value, alpha=weight)
        return WeightedSum(self.values, self.total + weight)

    def mean(self) -> dict[str, Tensor]:
        """`sum_i a_i x_i / sum_i a_i`, in float64."""
        return {name: value / self.total for name, value in self.values.items()}


def moved(values: Mapping[str, Tensor], step: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The new weights: `values + step` in float64, cast once."""
    return {name: (value.double() + step[name]).to(value.dtype) for name, value in values.items()}


class Aggregator(ABC):
    """A rule with a state of its own. It sees `sent + update - model` for each client: how far a client's
    result lies from the model that the server holds, whatever the client was sent."""

    def init(self, model: Weights) -> Any:
        """What is remembered before the first round."""
        return ()

    @abstractmethod
    def begin(self, state: Any, model: Weights, cohort: Cohort) -> Acc:
        """What the fold starts from."""

    @abstractmethod
    def fold(self, acc: Acc, client: int, sent: Weights, update: Weights, weight: float) -> Acc:
        """Take in one update."""

    @abstractmethod
    def finish(self, state: Any, acc: Acc) -> tuple[Any, Weights, Metrics]:
        """The new state, the new model, and what to record."""


class MeanAcc(NamedTuple):
    """The fold of `Mean`."""

    model: Weights
    floats: WeightedSum
    counters: Mapping[str, Tensor]


@dataclass(frozen=True)
class Mean(Aggregator):
    """`w + sum_i a_i (sent_i - w + update_i) / sum_i a_i`.

    Buffers follow the same rule as parameters, and integer ones (BatchNorm's counter of batches) take the
    largest value that any client reached.
    """

    def begin(self, state: Any, model: Weights, cohort: Cohort) -> MeanAcc:
        """See `Aggregator`."""
        return MeanAcc(model, WeightedSum.empty(), {})

    def fold(self, acc: MeanAcc, client: int, sent: Weights, update: Weights, weight: float) -> MeanAcc:
        """See `Aggregator`."""
        offsets, counters = {}, dict(acc.counters)
        for kind, values in acc.model._asdict().items():
            for name, value in values.items():
                there, change = getattr(sent, kind)[name], getattr(update, kind)[name]
                if value.is_floating_point():
                    offsets[name] = offset(value, there, change)
                else:
                    reached = there + change
                    counters[name] = torch.maximum(counters.get(name, reached), reached)
        return MeanAcc(acc.model, acc.floats.add(offsets, weight), counters)

    def finish(self, state: Any, acc: MeanAcc) -> tuple[Any, Weights, Metrics]:
        """See `Aggregator`."""
        step = acc.floats.mean()
        kept = {name: value for name, value in acc.model.buffers.items() if name not in acc.counters}
        buffers = {**moved(kept, step), **acc.counters}
        buffers = {name: buffers[name] for name in acc.model.buffers}
        return state, Weights(moved(acc.model.params, step), buffers), {}


def offset(value: Tensor, sent: Tensor, update: Tensor) -> Tensor:
    """`sent - value + update`. Where the client was sent this very tensor the update itself, exactly."""
    return update if sent is value else (sent.double() - value.double()) + update.double()


AGGREGATORS: dict[str, type[Aggregator]] = {"mean": Mean}
