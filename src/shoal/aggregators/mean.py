"""The weighted mean, as FedAvg has it.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017, Algorithm 1.

    step = sum_i a_i (sent_i - w + update_i) / sum_i a_i                       -> `Mean`

Departures: none. The sums are taken tensor by tensor over the clients that sent it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from shoal.aggregators.aggregator import Aggregator, Outcome, offset
from shoal.core.task import Task
from shoal.core.types import Cohort, Moment, PerClient, Weights
from shoal.kernels.fold import add_offset, weighted_sum


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


class WeightedSum(NamedTuple):
    """`sum_i a_i x_i` over floating tensors by name, in float64, folded one by one.

    A summand need not have all tensors: each has its own total of the weights.
    """

    values: Mapping[str, Tensor]
    totals: Mapping[str, float]

    @classmethod
    def empty(cls) -> WeightedSum:
        """Nothing summed yet."""
        return cls({}, {})

    def add(self, values: Mapping[str, Tensor], weight: float) -> WeightedSum:
        """With one more summand. The sum so far is updated in place: it belongs to the fold alone."""
        return self.add_offsets({name: (value, value, value) for name, value in values.items()}, weight)

    def add_offsets(self, parts: Mapping[str, tuple[Tensor, Tensor, Tensor]], weight: float) -> WeightedSum:
        """With `offset(*part)` of each part as one more summand."""
        sums = self._room({name: value for name, (value, _, _) in parts.items()})
        for name, part in parts.items():
            add_weighted_offset(sums[name], *part, weight)
        return WeightedSum(sums, self._weighed(parts, (weight,)))

    def add_rows(self, rows: Mapping[str, Tensor], weights: Tensor) -> WeightedSum:
        """With the summands of several clients: the same bits as one after another."""
        sums = self._room({name: value[0] for name, value in rows.items()})
        for name, value in rows.items():
            add_weighted(sums[name], value, weights)
        return WeightedSum(sums, self._weighed(rows, weights.tolist()))

    def mean(self) -> dict[str, Tensor]:
        """`sum_i a_i x_i / sum_i a_i`, in float64, of the tensors that any summand had."""
        return {name: value / self.totals[name] for name, value in self.values.items() if self.totals[name]}

    def _room(self, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
        new = {
            name: torch.zeros(value.shape, dtype=torch.float64, device=value.device)
            for name, value in parts.items()
            if name not in self.values
        }
        return {**self.values, **new}

    def _weighed(self, parts: Mapping[str, Any], weights: Any) -> dict[str, float]:
        return {**self.totals, **{name: sum(weights, self.totals.get(name, 0.0)) for name in parts}}


class MeanAcc(NamedTuple):
    """The fold."""

    model: Weights
    floats: WeightedSum
    counters: Mapping[str, Tensor]  # integer buffers: the largest so far
    draws: Mapping[int, int]  # see `Cohort`


@dataclass(frozen=True)
class Mean(Aggregator):
    """Averages updates by weight. Who was drawn several times counts as often.

    Buffers follow the same rule as parameters, and integer ones (BatchNorm's counter of batches) take the
    largest value that any client reached.
    """

    linear: ClassVar[bool] = True

    def begin(self, state: Any, model: Weights, cohort: Cohort) -> MeanAcc:
        """See `Aggregator`."""
        return MeanAcc(model, WeightedSum.empty(), {}, cohort.draws)

    def fold(self, acc: MeanAcc, client: int, sent: Weights, update: Weights, weight: float) -> MeanAcc:
        """See `Aggregator`."""
        parts = {}
        for values, there, changes in zip(acc.model, sent, update, strict=True):
            for name, change in changes.items():
                if values[name].is_floating_point():
                    parts[name] = (values[name], there[name], change)
        floats = acc.floats.add_offsets(parts, weight * acc.draws.get(client, 1))
        return acc._replace(floats=floats, counters=reached(acc.counters, sent, update))

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

    def finish(self, task: Task, state: Any, acc: MeanAcc, moment: Moment) -> Outcome:
        """See `Aggregator`."""
        mean = acc.floats.mean()
        params, buffers = ({name: mean[name] for name in values if name in mean} for values in acc.model)
        return Outcome(state, Weights(params, {**buffers, **counted(acc.model, acc.counters)}))


def reached(counters: Mapping[str, Tensor], sent: Weights, update: Weights) -> dict[str, Tensor]:
    """The largest values of integer buffers, with those of one more client."""
    largest = dict(counters)
    for name, change in update.buffers.items():
        if not change.is_floating_point():
            value = sent.buffers[name] + change
            largest[name] = torch.maximum(largest.get(name, value), value)
    return largest


def counted(model: Weights, counters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The step of integer buffers to their largest values."""
    return {name: value - model.buffers[name] for name, value in counters.items()}
