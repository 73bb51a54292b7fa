"""Aggregators that must see all updates of a round at once.

The updates lie side by side as rows of one matrix, in the order of the clients' ids, so that neither the
order of replies nor the engine decides between clients that are equally good.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shoal.core.errors import SpecError
from shoal.core.types import Acc, Cohort, Metrics, Weights
from shoal.parts.aggregators import Aggregator, add_weighted, moved, offset

CHUNK = 2**16  # columns of the matrix that are computed with at once


class Gathered(NamedTuple):
    """The updates of a round as rows: parameters, then floating buffers, each flat, side by side."""

    model: Weights  # that the server holds
    ids: tuple[int, ...]  # ascending
    rows: Tensor  # [clients, numbers] float32: how far each client's result lies from the model
    weights: Tensor  # [clients] float64: of the replies; NaN where none came
    counters: Mapping[str, Tensor]  # integer buffers: the largest so far
    draws: Mapping[int, int]  # see `Cohort`

    @classmethod
    def empty(cls, model: Weights, cohort: Cohort) -> Gathered:
        """Room for the whole cohort."""
        floats = floating(model)
        first = next(iter(floats.values()))
        width = sum(value.numel() for value in floats.values())
        rows = torch.empty(len(cohort.ids), width, dtype=first.dtype, device=first.device)
        weights = torch.full((len(cohort.ids),), torch.nan, dtype=torch.float64)
        return cls(model, tuple(sorted(cohort.ids)), rows, weights, {}, cohort.draws)

    def add(self, client: int, sent: Weights, update: Weights, weight: float) -> Gathered:
        """With one more update. Its row is written in place: the matrix belongs to the fold alone."""
        place = self.ids.index(client)
        there, change = floating(sent), floating(update)
        pieces = [
            offset(value, there[name], change[name]).reshape(-1)
            for name, value in floating(self.model).items()
        ]
        self.rows[place] = torch.cat(pieces)
        self.weights[place] = weight * self.draws.get(client, 1)
        counters = dict(self.counters)
        for name, value in self.model.buffers.items():
            if not value.is_floating_point():
                reached = sent.buffers[name] + update.buffers[name]
                counters[name] = torch.maximum(counters.get(name, reached), reached)
        return self._replace(counters=counters)

    def arrived(self) -> Gathered:
        """Without the rows of those who did not reply."""
        came = ~self.weights.isnan()
        if bool(came.all()):
            return self
        ids = tuple(client for client, here in zip(self.ids, came.tolist(), strict=True) if here)
        return self._replace(ids=ids, rows=self.rows[came], weights=self.weights[came])

    def parts(self) -> dict[str, Tensor]:
        """[clients, *shape]: the updates of each floating tensor, as views."""
        floats = floating(self.model)
        ends = torch.tensor([0, *(value.numel() for value in floats.values())]).cumsum(0).tolist()
        return {
            name: self.rows[:, first:last].reshape(-1, *value.shape)
            for (name, value), (first, last) in zip(floats.items(), pairwise(ends), strict=True)
        }

    def combined(self, coefficients: Tensor) -> Tensor:
        """[numbers] float64: the sum of the rows, each times its coefficient."""
        total = torch.zeros(self.rows.shape[1], dtype=torch.float64, device=self.rows.device)
        add_weighted(total, self.rows, coefficients)
        return total

    def moved(self, step: Tensor) -> Weights:
        """The model after a step [numbers]."""
        floats = floating(self.model)
        pieces = torch.split(step, [value.numel() for value in floats.values()])
        steps = {
            name: piece.reshape(value.shape)
            for (name, value), piece in zip(floats.items(), pieces, strict=True)
        }
        after = moved(floats, steps)
        buffers = {name: after[name] if name in after else self.counters[name] for name in self.model.buffers}
        return Weights({name: after[name] for name in self.model.params}, buffers)


def floating(weights: Weights) -> dict[str, Tensor]:
    """The parameters, and those of the buffers that are no counters."""
    buffers = {name: value for name, value in weights.buffers.items() if value.is_floating_point()}
    return {**weights.params, **buffers}


class Outcome(NamedTuple):
    """What a rule decides."""

    step: Tensor  # [numbers] float64
    weights: Tensor  # [clients] float64: how much each update counts in the step


class Gathering(Aggregator):
    """A rule on all updates of a round. It treats floating buffers as it treats parameters."""

    def check(self, clients: int) -> None:  # most rules fit every cohort
        """Raise `SpecError` if a cohort of this size cannot be served."""

    @abstractmethod
    def decide(self, state: Any, gathered: Gathered) -> tuple[Any, Outcome]:
        """The new state and the step, from the updates that came: at least one."""

    def begin(self, state: Any, model: Weights, cohort: Cohort) -> Acc:
        """See `Aggregator`."""
        self.check(len(cohort.ids))
        return Gathered.empty(model, cohort)

    def fold(self, acc: Gathered, client: int, sent: Weights, update: Weights, weight: float) -> Gathered:
        """See `Aggregator`."""
        return acc.add(client, sent, update, weight)

    def finish(self, state: Any, acc: Gathered) -> tuple[Any, Weights, Metrics]:
        """See `Aggregator`."""
        came = acc.arrived()
        state, outcome = self.decide(state, came)
        return state, came.moved(outcome.step), {"weights": by_client(came.ids, outcome.weights)}


def by_client(ids: tuple[int, ...], values: Tensor) -> dict[int, float]:
    """Client id -> value, as it is recorded."""
    return dict(zip(ids, values.tolist(), strict=True))


def count_of(amount: float, clients: int) -> int:
    """How many of the clients a number (1 or more) or a share (below 1) of them is; a share rounds down."""
    return int(amount * clients + 1e-9) if amount < 1 else int(amount)


def check_amount(name: str, amount: float, largest: float) -> None:
    """Refuse what is neither a share of the clients nor a number of them."""
    if not 0 <= amount < torch.inf or (amount < 1 and amount >= largest) or (amount >= 1 and amount % 1):
        raise SpecError(
            f"{name} must be a share of the clients in [0, {largest:g}) or a whole number of them, "
            f"got {amount:g}"
        )


def gram(rows: Tensor) -> Tensor:
    """[n, n] float64: the inner products of rows [n, numbers]."""
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for piece in torch.split(rows, CHUNK, 1):
        exact = piece.double()
        total += exact @ exact.T
    return total


def shortening(norms: Tensor, limit: float) -> Tensor:
    """[n] in [0, 1]: factors that make no row longer than `limit`."""
    return torch.where(norms > limit, limit / norms, 1.0)


def squared_distances(products: Tensor) -> Tensor:
    """[n, n] float64: between the rows whose inner products these are."""
    norms = products.diagonal()
    squares = (norms[:, None] + norms[None, :] - 2 * products).clamp(min=0)
    return squares.fill_diagonal_(0)
