"""Aggregators: how a server turns its clients' updates into the next model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from shoal.core.tree import row
from shoal.core.types import Acc, Cohort, Metrics, PerClient, Reply, Weights
from shoal.kernels.fold import add_offset, weighted_sum

Weighting = Literal["samples", "uniform"]


def client_weights(weighting: Weighting, reply: Reply) -> Tensor:
    """How much each of the stacked replies of a block counts."""
    assert reply.weight is not None
    return torch.ones_like(reply.weight) if weighting == "uniform" else reply.weight


def add_weighted(total: Tensor, rows: Tensor, weights: Tensor) -> None:
    """`total += sum_i weights[i] rows[i]`, in order, in float64."""
    if total.device.type == "cpu" and rows.dtype == torch.float32:
        flat = rows.detach().reshape(len(rows), -1).contiguous()
        weighted_sum(total.view(-1).numpy(), flat.numpy(), weights.numpy())
        return
    for weight, value in zip(weights.tolist(), rows, strict=True):
        total += weight * value.double()


def add_weighted_offset(total: Tensor, value: Tensor, sent: Tensor, update: Tensor, weight: float) -> None:
    """`total += weight * offset(value, sent, update)`, without a pass over memory for each of its parts."""
    parts = (value, sent, update)
    if sent is value or total.device.type != "cpu" or any(part.dtype != torch.float32 for part in parts):
        weights = torch.tensor([weight], dtype=torch.float64)
        add_weighted(total, offset(value, sent, update)[None], weights)
        return
    flat_value, flat_sent, flat_update = (part.detach().reshape(-1).numpy() for part in parts)
    add_offset(total.view(-1).numpy(), flat_value, flat_sent, flat_update, weight)


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
        return self.add_offsets({name: (value, value, value) for name, value in values.items()}, weight)

    def add_offsets(self, parts: Mapping[str, tuple[Tensor, Tensor, Tensor]], weight: float) -> WeightedSum:
        """With `offset(*part)` of each part as one more summand."""
        sums = self.values or {
            name: torch.zeros(value.shape, dtype=torch.float64, device=value.device)
            for name, (value, _, _) in parts.items()
        }
        for name, part in parts.items():
            add_weighted_offset(sums[name], *part, weight)
        return WeightedSum(sums, self.total + weight)

    def add_rows(self, rows: Mapping[str, Tensor], weights: Tensor) -> WeightedSum:
        """With the summands of several clients: the same bits as one after another."""
        sums = self.values or {
            name: torch.zeros(value.shape[1:], dtype=torch.float64, device=value.device)
            for name, value in rows.items()
        }
        for name, value in rows.items():
            add_weighted(sums[name], value, weights)
        return WeightedSum(sums, sum(weights.tolist(), self.total))

    def mean(self) -> dict[str, Tensor]:
        """`sum_i a_i x_i / sum_i a_i`, in float64."""
        return {name: value / self.total for name, value in self.values.items()}


def moved(values: Mapping[str, Tensor], step: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The new weights: `values + step` in float64, cast once. A variance that would be negative becomes 0:
    it has no root, and liars could make it so."""
    after = {name: (value.double() + step[name]).to(value.dtype) for name, value in values.items()}
    return {
        name: value.clamp(min=0) if name.rpartition(".")[2] == "running_var" else value
        for name, value in after.items()
    }


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

    def fold_block(
        self, acc: Acc, clients: tuple[int, ...], sent: Weights | PerClient, update: Weights, weights: Tensor
    ) -> Acc:
        """Take in the stacked updates of a block of clients."""
        for i, client in enumerate(clients):
            here = sent.rows[i] if isinstance(sent, PerClient) else sent
            acc = self.fold(acc, client, here, row(update, i), float(weights[i]))
        return acc

    @abstractmethod
    def finish(self, state: Any, acc: Acc) -> tuple[Any, Weights, Metrics]:
        """The new state, the new model, and what to record."""


class MeanAcc(NamedTuple):
    """The fold of `Mean`."""

    model: Weights
    floats: WeightedSum
    counters: Mapping[str, Tensor]
    draws: Mapping[int, int]  # see `Cohort`


@dataclass(frozen=True)
class Mean(Aggregator):
    """`w + sum_i a_i (sent_i - w + update_i) / sum_i a_i`.

    A client that was drawn several times counts as often. Buffers follow the same rule as parameters, and
    integer ones (BatchNorm's counter of batches) take the largest value that any client reached.
    """

    def begin(self, state: Any, model: Weights, cohort: Cohort) -> MeanAcc:
        """See `Aggregator`."""
        return MeanAcc(model, WeightedSum.empty(), {}, cohort.draws)

    def fold(self, acc: MeanAcc, client: int, sent: Weights, update: Weights, weight: float) -> MeanAcc:
        """See `Aggregator`."""
        parts, counters = {}, dict(acc.counters)
        for kind, values in acc.model._asdict().items():
            for name, value in values.items():
                there, change = getattr(sent, kind)[name], getattr(update, kind)[name]
                if value.is_floating_point():
                    parts[name] = (value, there, change)
                else:
                    reached = there + change
                    counters[name] = torch.maximum(counters.get(name, reached), reached)
        floats = acc.floats.add_offsets(parts, weight * acc.draws.get(client, 1))
        return acc._replace(floats=floats, counters=counters)

    def fold_block(
        self,
        acc: MeanAcc,
        clients: tuple[int, ...],
        sent: Weights | PerClient,
        update: Weights,
        weights: Tensor,
    ) -> MeanAcc:
        """See `Aggregator`."""
        if sent is not acc.model or acc.model.buffers:
            one_by_one: MeanAcc = Aggregator.fold_block(self, acc, clients, sent, update, weights)
            return one_by_one
        if acc.draws:
            weights = weights * torch.tensor([acc.draws.get(client, 1) for client in clients])
        return acc._replace(floats=acc.floats.add_rows(update.params, weights))

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
