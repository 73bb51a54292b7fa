"""Aggregators that must see all updates of a round at once.

The updates are the rows of one matrix, in the order of the cohort, so that neither the order of replies nor
the engine breaks ties between clients.
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
from shoal.core.threads import parallel_map
from shoal.core.types import Cohort, Metrics, Moment, PerClient, Weights
from shoal.kernels.fold import sum_of_squares, weighted_sum_along
from shoal.kernels.products import products_between

MOST = 10.0  # the largest weight of a client, in median weights
CHUNK = 2**16  # columns of the matrix that are processed at once
PIECE = 2**15  # columns per thread: for fewer, waking one does not pay

Result = TypeVar("Result")


class UpdateMatrix(NamedTuple):
    """The updates of a round as rows: the flattened parameters, then the flattened floating buffers."""

    model: Weights  # the server's
    ids: tuple[int, ...]  # in the order of the cohort
    rows: Tensor  # [clients, numbers] float32: each client's result minus the model
    weights: Tensor  # [clients] float64: of the replies; NaN for clients without a reply
    counters: Mapping[str, Tensor]  # integer buffers: the largest values so far
    draws: Mapping[int, int]  # see `Cohort`

    @classmethod
    def empty(cls, model: Weights, cohort: Cohort) -> UpdateMatrix:
        """An empty matrix with room for the whole cohort."""
        floats = floating(model)
        first = next(iter(floats.values()))
        width = sum(value.numel() for value in floats.values())
        rows = torch.empty(len(cohort.ids), width, dtype=first.dtype, device=first.device)
        weights = torch.full((len(cohort.ids),), torch.nan, dtype=torch.float64)
        return cls(model, cohort.ids, rows, weights, {}, cohort.draws)

    def add(self, client: int, sent: Weights, update: Weights, weight: float) -> UpdateMatrix:
        """The matrix with one more update. The row is written in place: only the fold holds the matrix."""
        place = self.ids.index(client)
        self.rows[place] = self.row(sent, update)
        self.weights[place] = weight * self.draws.get(client, 1)
        return self._replace(counters=reached(self.counters, sent, update))

    def row(self, sent: Weights, update: Weights) -> Tensor:
        """[numbers]: an update in the form of a row."""
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
        """The matrix with the stacked updates of several clients; None if they must be added one by one.

        The stacked updates of the whole cohort become the matrix without a copy, which would take as long as
        their sum.
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
        """The rows of the clients that replied, with bounded weights, because these are only claims."""
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
        """The updates [clients, *shape] of each floating tensor, as views."""
        floats = floating(self.model)
        return {
            name: self.rows[:, first:last].reshape(-1, *floats[name].shape)
            for name, (first, last) in self.ranges().items()
        }

    def no_step(self) -> Tensor:
        """[numbers] float64: zeros."""
        return torch.zeros(self.rows.shape[1], dtype=torch.float64, device=self.rows.device)

    def step(self, flat: Tensor) -> Weights:
        """A step [numbers], split into tensors."""
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
    """[n]: the weights that clients claim, limited to `MOST` times their median."""
    return claims.clamp(max=MOST * median(claims)) if len(claims) else claims


def floating(weights: Weights) -> dict[str, Tensor]:
    """The parameters, and the buffers that are not counters."""
    buffers = {name: value for name, value in weights.buffers.items() if value.is_floating_point()}
    return {**weights.params, **buffers}


NO_STEP = Weights({}, {})


class Decision(NamedTuple):
    """A rule's decision on the updates of a round."""

    state: Any
    step: Tensor  # [numbers] float64
    weights: Tensor  # [clients] float64: the weight of each update in the step
    pulls: Tensor | None = None  # [clients] float64: each client's share of the step, see `add_part`
    metrics: Metrics = MappingProxyType({})

    def outcome(self, updates: UpdateMatrix) -> Outcome:
        """The decision as an aggregator's `Outcome`."""
        metrics = dict(self.metrics)
        if self.pulls is not None:
            metrics["step_shares"] = by_client(updates.ids, self.pulls)
        return Outcome(self.state, updates.step(self.step), by_client(updates.ids, self.weights), metrics)


def add_part(
    total: Tensor, rows: Tensor, coefficients: Tensor, first: int, last: int
) -> tuple[Tensor, float]:
    """Add to a step [numbers], in the columns `first` to `last`, the rows [clients, numbers], each times its
    coefficient. Returns, for these columns, the inner products of each client's summand with the sum, and of
    the sum with itself. Their ratios are the clients' shares of the step, which sum to 1."""
    if rows.device.type == "cpu" and rows.dtype == torch.float32:
        numbers = rows.contiguous().numpy()
        found = weighted_sum_along(total.numpy(), numbers, coefficients.numpy(), first, last)
        along = torch.from_numpy(found)
        return coefficients * along[:-1], float(along[-1])
    part, exact = total[first:last], rows[:, first:last].double()
    add_weighted(part, exact, coefficients.numpy())
    return coefficients * (exact @ part).cpu(), float(part @ part)


class MatrixRule(Aggregator):
    """A rule that sees all updates of a round. It treats floating buffers like parameters."""

    @abstractmethod
    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """The new state and the step, from the updates that arrived, of which there is at least one."""

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
    """The decision whose step is the sum of the updates, each times its coefficient.

    If the rule passes their inner products, the clients' shares need no extra pass over the updates.
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
    sums over their results, in order, are the same bit for bit with any number of threads."""
    return parallel_map(lambda piece: work(*piece), pieces(0, width))


def pieces(first: int, last: int) -> list[tuple[int, int]]:
    """The columns from `first` to `last` (exclusive) in pieces, at least one."""
    return [(at, min(at + PIECE, last)) for at in range(first, max(last, first + 1), PIECE)]


def gram(rows: Tensor | Sequence[Tensor]) -> Tensor:
    """[n, n] float64: the inner products of rows [n, numbers], or of n separate vectors."""
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
    """[n] float64: the norms of rows [n, numbers]."""
    if rows.device.type == "cpu" and rows.dtype == torch.float32 and rows.stride(1) == 1:
        return torch.tensor([sum_of_squares(row) for row in rows.numpy()], dtype=torch.float64).sqrt()
    norms: Tensor = rows.double().norm(dim=1).cpu()
    return norms


def median(values: Tensor) -> float:
    """The median of [n] values; NaN if any value is NaN. Faster than `quantile`."""
    ordered = values.sort().values.tolist()
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return float("nan") if ordered[-1] != ordered[-1] else (low + high) / 2


def shortening(norms: Tensor, limit: float) -> Tensor:
    """[n] in [0, 1]: the factors that clip the norms of rows to `limit`."""
    return torch.where(norms > limit, limit / norms, 1.0)


def squared_distances(products: Tensor) -> Tensor:
    """[n, n] float64: the squared distances between the rows that have these inner products."""
    norms = products.diagonal()
    squares = (norms[:, None] + norms[None, :] - 2 * products).clamp(min=0)
    return squares.fill_diagonal_(0)
