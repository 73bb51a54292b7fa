"""The weighted mean of FedAvg.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017, Algorithm 1.

    step = sum_i a_i (sent_i - w + update_i) / sum_i a_i                       -> `Mean`

Departures: none. The sums for each tensor are over the clients that sent it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.aggregators.aggregator import Aggregator, Outcome, offset
from shoal.core.control import ControlChanges
from shoal.core.flat import Flat, in_one_vector, vectors
from shoal.core.task import Task
from shoal.core.tree import elementwise, row
from shoal.core.types import Cohort, Moment, PerClient, Weights
from shoal.kernels.fold import add_four, add_offset, weighted_sum


def add_weighted(total: Tensor, rows: Tensor, weights: np.ndarray, *, fresh: bool = False) -> None:
    """`total += sum_i weights[i] rows[i]`, in order, in float64; with `fresh`, the total counts as 0."""
    if total.device.type == "cpu" and rows.dtype == torch.float32:
        flat = rows.detach().reshape(len(rows), -1)
        if not flat[0].is_contiguous():
            flat = flat.contiguous()
        weighted_sum(total.view(-1).numpy(), flat.numpy(), weights, fresh=fresh)
        return
    if fresh:
        total.zero_()
    for weight, value in zip(weights.tolist(), rows, strict=True):
        total += weight * value.double()


def add_weighted_offset(
    total: Tensor, value: Tensor, sent: Tensor, update: Tensor, weights: np.ndarray
) -> None:
    """`total += weights[0] * offset(value, sent, update)`, in one pass over memory."""
    parts = (value, sent, update)
    if sent is value or total.device.type != "cpu" or any(part.dtype != torch.float32 for part in parts):
        add_weighted(total, offset(value, sent, update)[None], weights)
        return
    flat_value, flat_sent, flat_update = (part.detach().reshape(-1).numpy() for part in parts)
    add_offset(total.view(-1).numpy(), flat_value, flat_sent, flat_update, weights[0])


class WeightedSum(NamedTuple):
    """`sum_i a_i x_i` over floating tensors by name, in float64, folded one by one.

    A summand need not have all tensors: each tensor has its own total weight. Summands that are one vector
    wait until there are four, which takes one pass over the sums instead of four; the result is the same bit
    for bit.
    """

    sums: Mapping[str, Tensor]  # without the waiting summands
    totals: Mapping[str, float]
    waiting: list[tuple[Tensor, float]]  # held by the fold alone, like the sums

    @classmethod
    def empty(cls) -> WeightedSum:
        """Nothing summed yet."""
        return cls({}, {}, [])

    @property
    def values(self) -> Mapping[str, Tensor]:
        """The sums, by name."""
        self._add_waiting()
        return self.sums

    def add(self, values: Mapping[str, Tensor], weight: float) -> WeightedSum:
        """The sum with one more summand. It is updated in place, because only the fold holds it."""
        return self.add_offsets(values, values, values, weight)

    def add_offsets(
        self,
        origin: Mapping[str, Tensor],
        sent: Mapping[str, Tensor],
        update: Mapping[str, Tensor],
        weight: float,
    ) -> WeightedSum:
        """The sum with one more summand, `offset(origin, sent, update)`, for all tensors of the update."""
        sums, weights = self._room(update), np.array([weight], np.float64)
        if sent is origin:  # only the update is added, whatever other tensors the model has
            origin = sent = update
        whole = vectors(sums, origin, sent, update)
        if whole is not None and whole[2] is whole[1] and _waits(whole[3]):
            self.waiting.append((whole[3], weight))
            if len(self.waiting) == FOUR:
                WeightedSum(sums, {}, self.waiting)._add_waiting()
            return self._replace(sums=sums, totals=self._weighed(update, (weight,)))
        self._add_waiting()
        if whole is not None:
            total, value, there, change = whole
            add_weighted_offset(total, value, there, change, weights)
        else:
            for name, value in update.items():
                add_weighted_offset(sums[name], origin[name], sent[name], value, weights)
        return self._replace(sums=sums, totals=self._weighed(update, (weight,)))

    def add_rows(self, rows: Mapping[str, Tensor] | PerClient, weights: Tensor) -> WeightedSum:
        """The sum with the summands of several clients: bit for bit the same as one after another."""
        self._add_waiting()
        if isinstance(rows, PerClient):
            return self._add_computed(rows.rows, weights.tolist())
        fresh = not self.sums and type(rows) is Flat
        sums = elementwise(_space, row(rows, 0)) if fresh else self._room(row(rows, 0))
        whole = vectors(sums, rows)
        if whole is not None:
            add_weighted(whole[0], whole[1], weights.numpy(), fresh=fresh)
        else:
            for name, value in rows.items():
                add_weighted(sums[name], value, weights.numpy())
        return self._replace(sums=sums, totals=self._weighed(rows, weights.tolist()))

    def _add_computed(self, rows: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> WeightedSum:
        if not isinstance(rows, ControlChanges) or set(weights) != {1.0}:
            return reduce(lambda total, one: total.add(*one), zip(rows, weights, strict=True), self)
        fresh, layout = not self.sums, rows.layout
        sums = layout.tree(torch.empty(sum(layout.sizes), dtype=torch.float64)) if fresh else self.sums
        rows.add_to(in_one_vector(sums).vector, fresh=fresh)
        return self._replace(sums=sums, totals=self._weighed(layout.keys, weights))

    def mean(self) -> Mapping[str, Tensor]:
        """`sum_i a_i x_i / sum_i a_i`, in float64, for the tensors that any summand had."""
        total, *others = set(self.totals.values()) or {0.0}
        if total and not others:
            mean: Mapping[str, Tensor] = elementwise(lambda value: value / total, self.values)
            return mean
        return {name: value / self.totals[name] for name, value in self.values.items() if self.totals[name]}

    def _add_waiting(self) -> None:
        if len(self.waiting) == FOUR:
            r0, r1, r2, r3 = (vector.numpy() for vector, _ in self.waiting)
            weights = np.array([weight for _, weight in self.waiting])
            add_four(in_one_vector(self.sums).vector.numpy(), r0, r1, r2, r3, weights)
        else:
            for vector, weight in self.waiting:
                add_weighted(in_one_vector(self.sums).vector, vector[None], np.array([weight]))
        self.waiting.clear()

    def _room(self, parts: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if not self.sums:
            room: Mapping[str, Tensor] = elementwise(_zeros, parts)
            return room
        if vectors(self.sums, parts) is not None:
            return self.sums
        new = {name: _zeros(value) for name, value in parts.items() if name not in self.sums}
        return {**self.sums, **new} if new else self.sums

    def _weighed(self, parts: Iterable[str], weights: Any) -> dict[str, float]:
        before = {self.totals.get(name, 0.0) for name in parts}
        if len(before) == 1:  # as always when all clients send all tensors
            return {**self.totals, **dict.fromkeys(parts, sum(weights, before.pop()))}
        return {**self.totals, **{name: sum(weights, self.totals.get(name, 0.0)) for name in parts}}


FOUR = 4


def _waits(vector: Tensor) -> bool:
    """Whether a summand can be added together with three others."""
    return vector.device.type == "cpu" and vector.dtype == torch.float32 and not vector.requires_grad


def _zeros(value: Tensor) -> Tensor:
    return torch.zeros(value.shape, dtype=torch.float64, device=value.device)


def _space(value: Tensor) -> Tensor:
    return torch.empty(value.shape, dtype=torch.float64, device=value.device)


class MeanAcc(NamedTuple):
    """The accumulator."""

    model: Weights
    params: WeightedSum
    buffers: WeightedSum  # floating-point buffers
    counters: Mapping[str, Tensor]  # integer buffers: the largest values so far
    draws: Mapping[int, int]  # see `Cohort`


@dataclass(frozen=True)
class Mean(Aggregator):
    """Averages updates by weight; a client that was drawn several times counts that many times.

    Buffers follow the same rule as parameters, and integer ones (BatchNorm's counter of batches) take the
    largest value that any client reached.
    """

    linear: ClassVar[bool] = True

    def begin(self, state: Any, model: Weights, cohort: Cohort) -> MeanAcc:
        """See `Aggregator`."""
        return MeanAcc(model, WeightedSum.empty(), WeightedSum.empty(), {}, cohort.draws)

    def fold(self, acc: MeanAcc, client: int, sent: Weights, update: Weights, weight: float) -> MeanAcc:
        """See `Aggregator`."""
        weight *= acc.draws.get(client, 1)
        params = acc.params.add_offsets(acc.model.params, sent.params, update.params, weight)
        buffers = {name: value for name, value in update.buffers.items() if value.is_floating_point()}
        if buffers:
            summed = acc.buffers.add_offsets(acc.model.buffers, sent.buffers, buffers, weight)
            acc = acc._replace(buffers=summed)
        return acc._replace(params=params, counters=reached(acc.counters, sent, update))

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
        return acc._replace(params=acc.params.add_rows(update.params, weights))

    def finish(self, task: Task, state: Any, acc: MeanAcc, moment: Moment) -> Outcome:
        """See `Aggregator`."""
        params, buffers = acc.params.mean(), acc.buffers.mean()
        if vectors(acc.model.params, params) is None:
            params = {name: params[name] for name in acc.model.params if name in params}
        return Outcome(state, Weights(params, {**buffers, **counted(acc.model, acc.counters)}))


def reached(counters: Mapping[str, Tensor], sent: Weights, update: Weights) -> dict[str, Tensor]:
    """The largest values of integer buffers, including one more client's."""
    largest = dict(counters)
    for name, change in update.buffers.items():
        if not change.is_floating_point():
            value = sent.buffers[name] + change
            largest[name] = torch.maximum(largest.get(name, value), value)
    return largest


def counted(model: Weights, counters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The step of integer buffers towards their largest values."""
    return {name: value - model.buffers[name] for name, value in counters.items()}
