"""The server of most methods: an aggregator turns the updates into a step, and an optimizer applies it."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shoal.aggregators.aggregator import Aggregator, Weighting, moved
from shoal.core.key import Key
from shoal.core.method import Axes
from shoal.core.task import Task
from shoal.core.training import Training, check_training
from shoal.core.types import Acc, Cohort, Metrics, Moment, PerClient, Reply, Weights
from shoal.server.optimizer import ServerOptimizer


class Averaged(NamedTuple):
    """The server state: the model, and the states of the aggregator and the server optimizer."""

    model: Weights
    aggregator: Any
    server: Any


@dataclass(frozen=True)
class Averaging:
    """A method's three server slots, and the server functions built from them."""

    aggregator: Aggregator
    server: ServerOptimizer
    weights: Weighting

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        self.aggregator.check(task, axes)
        if axes.selector.by_samples and self.weights == "samples":
            warnings.warn(
                "the selector draws clients by their samples, and the mean counts these once more; "
                'for an unbiased one set method.weights = "uniform"',
                stacklevel=2,
            )

    def init(self, model: Weights) -> Averaged:
        """The state before the first round."""
        return Averaged(model, self.aggregator.init(model), self.server.init(model.params))

    def begin(self, state: Averaged, cohort: Cohort) -> Acc:
        """See `Aggregator`."""
        return self.aggregator.begin(state.aggregator, state.model, cohort)

    def fold(self, acc: Acc, client: int, sent: Weights, update: Weights, reply: Reply) -> Acc:
        """See `Aggregator`."""
        return self.aggregator.fold(acc, client, sent, update, client_weight(self.weights, reply))

    def fold_block(
        self, acc: Acc, clients: tuple[int, ...], sent: Weights | PerClient, update: Weights, reply: Reply
    ) -> Acc:
        """See `Aggregator`."""
        return self.aggregator.fold_block(acc, clients, sent, update, client_weights(self.weights, reply))

    def finish(self, task: Task, state: Averaged, acc: Acc, moment: Moment) -> tuple[Averaged, Metrics]:
        """The new state and the recorded metrics."""
        outcome = self.aggregator.finish(task, state.aggregator, acc, moment)
        kept, params = self.server.step(state.server, outcome.step.params)
        model = moved(state.model, outcome.step._replace(params=params))
        weights: Mapping[str, Any] = {"weights": outcome.weights} if outcome.weights else {}
        return Averaged(model, outcome.state, kept), {**weights, **outcome.metrics}


def client_weight(weighting: Weighting, reply: Reply) -> float:
    """The weight of a reply: its number of samples, or 1."""
    return 1.0 if weighting == "uniform" or reply.weight is None else float(reply.weight)


def client_weights(weighting: Weighting, reply: Reply) -> Tensor:
    """The weights of the stacked replies of a block."""
    assert reply.weight is not None
    return torch.ones_like(reply.weight) if weighting == "uniform" else reply.weight


class AveragingMethod(Training):
    """A method whose clients send an update of the model: its slots, and a server that works like FedAvg's.

    A subclass with a larger state overrides the server functions.
    """

    aggregator: Aggregator
    server: ServerOptimizer

    @property
    @abstractmethod
    def weights(self) -> Weighting:
        """How clients are weighted; a field of every such method."""

    @property
    def averaging(self) -> Averaging:
        """The server's slots."""
        return Averaging(self.aggregator, self.server, self.weights)

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        check_training(self.local, self.terms, task)
        self.averaging.check(task, axes)

    def expects(self, task: Task, sent: Any) -> Mapping[str, Any]:
        """See `Method`."""
        return {"update": sent.model}

    def init(self, task: Task, key: Key) -> Any:
        """See `Method`."""
        return self.averaging.init(task.init(key))

    def begin(self, state: Any, cohort: Cohort) -> Acc:
        """See `Method`."""
        return self.averaging.begin(state, cohort)

    def fold(self, acc: Acc, client: int, sent: Any, reply: Reply) -> Acc:
        """See `Method`."""
        return self.averaging.fold(acc, client, sent.model, reply.payload.update, reply)

    def fold_block(self, acc: Acc, clients: tuple[int, ...], sent: Any, reply: Reply) -> Acc:
        """See `Method`."""
        return self.averaging.fold_block(acc, clients, sent.model, reply.payload.update, reply)

    def finish(self, task: Task, state: Any, acc: Acc, moment: Moment) -> tuple[Any, Metrics]:
        """See `Method`."""
        return self.averaging.finish(task, state, acc, moment)
