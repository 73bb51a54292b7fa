"""The protocol of an aggregator: how the server turns the clients' updates into a step of the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from shoal.core.errors import SpecError
from shoal.core.flat import flat, in_one_vector, vectors
from shoal.core.method import Axes
from shoal.core.task import Task
from shoal.core.tree import row
from shoal.core.types import Acc, Cohort, Metrics, Moment, PerClient, Weights
from shoal.kernels import model_steps

Weighting = Literal["samples", "uniform"]


class Outcome(NamedTuple):
    """The result of an aggregation."""

    state: Any
    step: Weights  # float64, integers for counters; a tensor that no client sent is absent and stays as it is
    weights: Mapping[int, float] = MappingProxyType({})  # by client: how much each update counts
    metrics: Metrics = MappingProxyType({})


class Aggregator(ABC):
    """An aggregation rule, which may have a state. It sees `sent + update - model` for each client: how far
    the client's result lies from the model that the server holds, whatever the client was sent."""

    weighs: ClassVar[bool] = True  # whether clients' weights count; False: all clients have equal weight
    linear: ClassVar[bool] = False  # whether the step is a sum of updates with the clients' declared weights

    def check(self, task: Task, axes: Axes) -> None:  # noqa: B027  # most rules fit every run
        """Raise `SpecError` if it is incompatible with this run."""

    def check_cohort(self, clients: int) -> None:  # noqa: B027  # most rules fit every cohort
        """Raise `SpecError` if a cohort of this size cannot be served."""

    def init(self, model: Weights) -> Any:
        """The state before the first round."""
        return ()

    @abstractmethod
    def begin(self, state: Any, model: Weights, cohort: Cohort) -> Acc:
        """The accumulator that the fold starts from."""

    @abstractmethod
    def fold(self, acc: Acc, client: int, sent: Weights, update: Weights, weight: float) -> Acc:
        """Take in one update, which may be kept."""

    def fold_block(
        self, acc: Acc, clients: tuple[int, ...], sent: Weights | PerClient, update: Weights, weights: Tensor
    ) -> Acc:
        """Take in the stacked updates of a block of clients; the same as folding one after another."""
        for i, client in enumerate(clients):
            here = sent.rows[i] if isinstance(sent, PerClient) else sent
            acc = self.fold(acc, client, here, row(update, i), float(weights[i]))
        return acc

    @abstractmethod
    def finish(self, task: Task, state: Any, acc: Acc, moment: Moment) -> Outcome:
        """The outcome of the round's updates, of which there may be none."""


def moved(model: Weights, step: Weights) -> Weights:
    """The model after a step: summed in float64 and cast once. A negative running variance, which attackers
    could cause, becomes 0, because it has no root."""
    params = advanced(model.params, step.params)
    buffers = {
        name: _clamped(name, _moved(value, step.buffers.get(name))) for name, value in model.buffers.items()
    }
    return Weights(params, buffers)


def advanced(
    params: Mapping[str, Tensor], step: Mapping[str, Tensor], divisor: float = 1.0
) -> Mapping[str, Tensor]:
    """`params + step / divisor` for the tensors that the step has, summed in float64 and cast once."""
    whole = vectors(params, step)
    if whole is None:
        return flat({name: _moved(value, step.get(name), divisor) for name, value in params.items()})
    now, by = whole
    if (now.dtype, by.dtype) == (torch.float32, torch.float64) and now.device.type == "cpu":
        out = torch.empty_like(now, memory_format=torch.contiguous_format)
        model_steps.advance(out.numpy(), now.contiguous().numpy(), by.contiguous().numpy(), divisor)
    else:
        out = _moved(now, by, divisor)
    return in_one_vector(params).layout.tree(out)


def _moved(value: Tensor, step: Tensor | None, divisor: float = 1.0) -> Tensor:
    if step is None:
        return value
    step = step if divisor == 1 else step / divisor
    return (value.double() + step).to(value.dtype) if value.is_floating_point() else value + step


def _clamped(name: str, value: Tensor) -> Tensor:
    return value.clamp(min=0) if name.rpartition(".")[2] == "running_var" else value


def offset(value: Tensor, sent: Tensor, update: Tensor) -> Tensor:
    """`sent - value + update`; if the client was sent this very tensor, exactly the update itself."""
    return update if sent is value else (sent.double() - value.double()) + update.double()


def by_client(ids: tuple[int, ...], values: Tensor) -> dict[int, float]:
    """Client id -> value, in the form that is recorded."""
    return dict(zip(ids, values.tolist(), strict=True))


def count_of(amount: float, clients: int) -> int:
    """The number of clients meant by a number (1 or more) or a share (below 1); a share is rounded down."""
    return int(amount * clients + 1e-9) if amount < 1 else int(amount)


def check_amount(name: str, amount: float, largest: float) -> None:
    """Raise `SpecError` if the amount is neither a share of the clients nor a number of them."""
    if not 0 <= amount < torch.inf or (amount < 1 and amount >= largest) or (amount >= 1 and amount % 1):
        raise SpecError(
            f"{name} must be a share of the clients in [0, {largest:g}) or a whole number of them, "
            f"got {amount:g}"
        )
