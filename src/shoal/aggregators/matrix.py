"""Aggregators that must see all updates of a round at once.

The updates lie side by side as rows of one matrix, in the order of the cohort, so that neither the order of
replies nor the engine decides between clients that are equally good.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from shoal.aggregators.aggregator import Aggregator, Outcome, by_client, offset
from shoal.aggregators.mean import add_weighted, counted, reached
from shoal.core.flat import Flat, vectors
from shoal.core.task import Task
from shoal.core.threads import side_by_side
from shoal.core.types import Cohort, Metrics, Moment, PerClient, Weights
from shoal.kernels.fold import sum_of_squares, weighted_sum_along
from shoal.kernels.products import products_between

MOST = 10.0  # median weights that a client may have
CHUNK = 2**16  # columns of the matrix that are computed with at once
PIECE = 2**15  # columns that a thread takes: for fewer, it is not worth to wake one

Result = TypeVar("Result")


class UpdateMatrix(NamedTuple):
    """The updates of a round as rows: parameters, then floating buffers, each flat, side by side."""

    model: Weights  # that the server holds
    ids: tuple[int, ...]  # in the order of the cohort
    rows: Tensor  # [clients, numbers] float32: how far each client's result lies from the model
    weights: Tensor  # [clients] float64: of the replies; NaN where none came
    counters: Mapping[str, Tensor]  # integer buffers: the largest so far
    draws: Mapping[int, int]  # see `Cohort`

    @classmethod
    def empty(cls, model: Weights, cohort: Cohort) -> UpdateMatrix:
        """Room for the whole cohort."""
        floats = floating(model)
        first = next(iter(floats.values()))
        width = sum(value.numel() for value in floats.values())
        rows = torch.empty(len(cohort.ids), width, dtype=first.dtype, device=first.device)
        weights = torch.full((len(cohort.ids),), torch.nan, dtype=torch.float64)
        return cls(model, cohort.ids, rows, weights, {}, cohort.draws)

    def add(self, client: int, sent: Weights, update: Weights, weight: float) -> UpdateMatrix:
        """With one more update. Its row is written in place: the matrix belongs to the fold alone."""
        place = self.ids.index(client)
        self.rows[place] = self.row(sent, update)
        self.weights[place] = weight * self.draws.get(client, 1)
        return self._replace(counters=reached(self.counters, sent, update))

    def row(self, sent: Weights, update: Weights) -> Tensor:
        """[numbers]: an update as the rows are."""
        whole = vectors(self.model.params, sent.params, update.params)
        if whole is not None and not self.model.buffers:
            return offset(*whole)
        there, change = floating(sent), floating(update)
        pieces = [
            offset(value, there[name], change[name]).reshape(-1)
            for name, value in floating(self.model).items()
        ]
        return torch.cat(pieces)

    def add_rows(
        self, clients: tuple[int, ...], sent: Weights | PerClient, update: Weights, weights: Tensor
    ) -> UpdateMatrix | None:
        """With the stacked updates of several clients, in one pass; None where each has to be looked at.

        Those of the whole cohort are the matrix as they are: a copy would take as long as their sum.
        """
        whole = vectors(self.model.params, update.params)
        if whole is None or sent is not self.model or self.model.buffers:
            return None
        places = [self.ids.index(client) for client in clients]
        often = torch.tensor([self.draws.get(client, 1) for client in clients])
        self.weights[places] = weights.double() * often
        if clients == self.ids:
            return self._replace(rows=whole[1].to(self.rows))
        for place, row in zip(places, whole[1], strict=True):
            self.rows[place].copy_(row)  # three times as fast as `index_copy_`
        return self

    @property
    def nobody_came(self) -> bool:
        """Whether there is no row."""
        return bool(self.weights.isnan().all())

    def arrived(self) -> UpdateMatrix:
        """Without the rows of those who did not reply; a weight is only a claim, and bounded."""
        came = ~self.weights.isnan()
        if bool(came.all()):
            return self._replace(weights=bounded(self.weights))
        ids = tuple(client for client, here in zip(self.ids, came.tolist(), strict=True) if here)
        return self._replace(ids=ids, rows=self.rows[came], weights=bounded(self.weights[came]))

    def ranges(self) -> dict[str, tuple[int, int]]:
        """Where each floating tensor begins and ends in a row."""
        floats = floating(self.model)
        ends = accumulate((value.numel() for value in floats.values()), initial=0)
        return dict(zip(floats, pairwise(ends), strict=True))

    def parts(self) -> dict[str, Tensor]:
        """[clients, *shape]: the updates of each floating tensor, as views."""
        floats = floating(self.model)
        return {
            name: self.rows[:, first:last].reshape(-1, *floats[name].shape)
            for name, (first, last) in self.ranges().items()
        }

    def no_step(self) -> Tensor:
        """[numbers] float64: zeros."""
        return torch.zeros(self.rows.shape[1], dtype=torch.float64, device=self.rows.device)

    def step(self, flat: Tensor) -> Weights:
        """A step [numbers], by tensor."""
        floats, held = floating(self.model), self.model.params
        pieces = torch.split(flat, [value.numel() for value in floats.values()])
        steps = {
            name: piece.reshape(value.shape)
            for (name, value), piece in zip(floats.items(), pieces, strict=True)
        }
        params, buffers = ({name: steps[name] for name in values if name in steps} for values in self.model)
        together = held.layout.tree(flat[: len(held.vector)]) if isinstance(held, Flat) else params
        return Weights(together, {**buffers, **counted(self.model, self.counters)})


def bounded(claims: Tensor) -> Tensor:
    """[n]: weights that clients claim, none more than `MOST` times the median."""
    return claims.clamp(max=MOST * median(claims)) if len(claims) else claims


def floating(weights: Weights) -> dict[str, Tensor]:
    """The parameters, and those of the buffers that are no counters."""
    buffers = {name: value for name, value in weights.buffers.items() if value.is_floating_point()}
    return {**weights.params, **buffers}


NO_STEP = Weights({}, {})


class Decision(NamedTuple):
    """What a rule makes of the updates of a round."""

    state: Any
    step: Tensor  # [numbers] float64
    weights: Tensor  # [clients] float64: how much each update counts in the step
    pulls: Tensor | None = None  # [clients] float64: each client's share of the step, see `add_part`
    metrics: Metrics = MappingProxyType({})

    def outcome(self, updates: UpdateMatrix) -> Outcome:
        """As an aggregator gives it."""
        metrics = dict(self.metrics)
        if self.pulls is not None:
            metrics["step_shares"] = by_client(updates.ids, self.pulls)
        return Outcome(self.state, updates.step(self.step), by_client(updates.ids, self.weights), metrics)


def add_part(
    total: Tensor, rows: Tensor, coefficients: Tensor, first: int, last: int
) -> tuple[Tensor, float]:
    """Add to a step [numbers] the sum of rows [clients, numbers], each times its coefficient, from `first` to
    `last`. Returns, of that part, the inner products of each client's summand with the sum, and of the sum
    with itself: the first over the second are the clients' shares, and sum to 1."""
    if rows.device.type == "cpu" and rows.dtype == torch.float32:
        numbers = rows.contiguous().numpy()
        found = weighted_sum_along(total.numpy(), numbers, coefficients.numpy(), first, last)
        along = torch.from_numpy(found)
        return coefficients * along[:-1], float(along[-1])
    part, exact = total[first:last], rows[:, first:last].double()
    add_weighted(part, exact, coefficients.numpy())
    return coefficients * (exact @ part).cpu(), float(part @ part)


class MatrixRule(Aggregator):
    """A rule on all updates of a round. It treats floating buffers as it treats parameters."""

    @abstractmethod
    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """The new state and the step, from the updates that came: at least one."""

    def begin(self, state: Any, model: Weights, cohort: Cohort) -> UpdateMatrix:
        """See `Aggregator`."""
        self.check_cohort(len(cohort.ids))
        return UpdateMatrix.empty(model, cohort)

    def fold(
        self, acc: UpdateMatrix, client: int, sent: Weights, update: Weights, weight: float
    ) -> UpdateMatrix:
        """See `Aggregator`."""
        return acc.add(client, sent, update, weight)

    def fold_block(
        self,
        acc: UpdateMatrix,
        clients: tuple[int, ...],
        sent: Weights | PerClient,
        update: Weights,
        weights: Tensor,
    ) -> UpdateMatrix:
        """See `Aggregator`."""
        at_once = acc.add_rows(clients, sent, update, weights)
        if at_once is None:
            at_once = Aggregator.fold_block(self, acc, clients, sent, update, weights)
        return at_once

    def finish(self, task: Task, state: Any, acc: UpdateMatrix, moment: Moment) -> Outcome:
        """See `Aggregator`."""
        came = acc.arrived()
        if not came.ids:
            return Outcome(state, NO_STEP)
        return self.decide(state, came).outcome(came)


def weighted(
    state: Any, updates: UpdateMatrix, coefficients: Tensor, products: Tensor | None = None
) -> Decision:
    """The decision for the sum of the updates, each times its coefficient.

    Their inner products, where a rule knows them, save a pass over the updates for the clients' shares.
    """
    step, rows = updates.no_step(), updates.rows
    if products is None:
        parts = in_pieces(lambda first, last: add_part(step, rows, coefficients, first, last), len(step))
        pulls, length = torch.stack([part for part, _ in parts]).sum(0), sum(part for _, part in parts)
    else:
        add_weighted(step, rows, coefficients.numpy())
        pulls = coefficients * (products @ coefficients)
        length = float(pulls.sum())
    return Decision(state, step, coefficients, pulls / length if length else torch.zeros_like(pulls))


def in_pieces(work: Callable[[int, int], Result], width: int) -> list[Result]:
    """`work(first, last)` for pieces of `width` columns, in threads. The pieces depend on the width alone, so
    that sums over what they give, in order, have the same bits for any number of threads."""
    return side_by_side(lambda piece: work(*piece), pieces(0, width))


def pieces(first: int, last: int) -> list[tuple[int, int]]:
    """At least one piece of columns, from the first to the last (exclusive)."""
    return [(at, min(at + PIECE, last)) for at in range(first, max(last, first + 1), PIECE)]


def gram(rows: Tensor | Sequence[Tensor]) -> Tensor:
    """[n, n] float64: the inner products of rows [n, numbers], or of n vectors that lie apart."""
    first = rows[0]
    if first.device.type == "cpu" and first.dtype == torch.float32:
        numbers = [row.contiguous().numpy() for row in rows]
        return torch.from_numpy(sum(in_pieces(products_between(numbers), first.numel())))
    together = rows if isinstance(rows, Tensor) else torch.stack(list(rows))
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=first.device)
    for piece in torch.split(together, CHUNK, 1):
        exact = piece.double()
        total += exact @ exact.T
    return total.cpu()


def row_norms(rows: Tensor) -> Tensor:
    """[n] float64: the lengths of rows [n, numbers]."""
    if rows.device.type == "cpu" and rows.dtype == torch.float32 and rows.stride(1) == 1:
        return torch.tensor([sum_of_squares(row) for row in rows.numpy()], dtype=torch.float64).sqrt()
    norms: Tensor = rows.double().norm(dim=1).cpu()
    return norms


def median(values: Tensor) -> float:
    """The middle one of [n] values, or the mean of the middle two; NaN if one is. Faster than `quantile`."""
    ordered = values.sort().values.tolist()
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return float("nan") if ordered[-1] != ordered[-1] else (low + high) / 2


def shortening(norms: Tensor, limit: float) -> Tensor:
    """[n] in [0, 1]: factors that make no row longer than `limit`."""
    return torch.where(norms > limit, limit / norms, 1.0)


def squared_distances(products: Tensor) -> Tensor:
    """[n, n] float64: between the rows whose inner products these are."""
    norms = products.diagonal()
    squares = (norms[:, None] + norms[None, :] - 2 * products).clamp(min=0)
    return squares.fill_diagonal_(0)
