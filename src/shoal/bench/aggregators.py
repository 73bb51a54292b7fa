"""The time of one server step from the clients' updates, by rule, model and number of clients."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import torch

from shoal.aggregators import AGGREGATORS
from shoal.aggregators.aggregator import Aggregator
from shoal.bench.rounds import Row, digits
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.types import Cohort, Moment, Weights
from shoal.runs.runner import closing, one_thread

MODELS = ("mlp", "cnn", "resnet18")
CLIENTS = (10, 20, 50, 100)
TURNS = 3
LONG = 5.0  # seconds; a longer turn is not repeated
LARGEST = 2**28  # numbers in all updates: one gigabyte
LEFT_OUT = ("fltrust",)  # its server trains, which takes as long as a client's training
_KEY = Key.from_seed(0)


def measure(
    models: Sequence[str] = MODELS,
    clients: Sequence[int] = CLIENTS,
    turns: int = TURNS,
    watcher: Callable[[str, str], None] | None = None,
) -> Iterator[Row]:
    """One row per model and rule: median seconds by number of clients.

    They are None if the updates do not fit into memory, or if there are too few clients for the rule. An
    update is the sum of a part that all clients share and a random one; its matrices have full rank.
    """
    for name in models:
        with one_thread(), closing(digits(name, "fedavg")) as setup:
            task = setup.side.task
            model = task.init(_KEY)
            most = LARGEST // _size(model)
            fitting = [count for count in clients if count <= most]
            updates = [_update(model, client) for client in range(max(fitting))]
            for rule, kind in AGGREGATORS.items():
                if rule in LEFT_OUT:
                    continue
                if watcher is not None:
                    watcher(name, rule)
                took = {count: _seconds(kind(), task, model, updates[:count], turns) for count in fitting}
                seconds = {f"seconds_{count}": took.get(count) for count in clients}
                yield {"model": name, "parameters": _size(model), "aggregator": rule, **seconds}


def _size(model: Weights) -> int:
    return sum(value.numel() for value in model.params.values())


def _update(model: Weights, client: int) -> Weights:
    """A client's update: the common part, plus a part of its own of the same size."""
    common, own = _KEY.fold("common").torch(), _KEY.fold("client", client).torch()

    def drawn(value: torch.Tensor) -> torch.Tensor:
        if not value.is_floating_point():
            return torch.zeros_like(value)
        both = (torch.randn(value.shape, generator=draw) for draw in (common, own))
        return 0.01 * sum(both, torch.zeros(value.shape))

    return Weights(*({name: drawn(value) for name, value in part.items()} for part in model))


def _seconds(
    rule: Aggregator, task: Task, model: Weights, updates: Sequence[Weights], turns: int
) -> float | None:
    """The time to fold the updates and finish the step: in the rule's second round, in which it has a state.

    If the first round takes long, its time counts.
    """
    cohort, state, took = Cohort(tuple(range(len(updates))), {}, len(updates)), rule.init(model), []
    for turn in range(turns + 1):
        started = time.perf_counter()
        try:
            acc = rule.begin(state, model, cohort)
        except SpecError:
            return None
        for client, update in enumerate(updates):
            acc = rule.fold(acc, client, model, update, 1.0)
        decided = rule.finish(task, state, acc, Moment(turn, 0, True, _KEY.fold(turn)))
        took.append(time.perf_counter() - started)
        if took[-1] > LONG:
            return took[-1]
        state = decided.state if turn == 0 else state
    return statistics.median(took[1:])
