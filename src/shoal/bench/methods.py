"""The time of a round for every method, compared with a round of FedAvg."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from shoal.bench.rounds import Row, closed_after, digits
from shoal.config import arguments
from shoal.core.errors import SpecError
from shoal.methods import METHODS
from shoal.runs.runner import one_thread

MODELS = ("mlp", "lenet")
TURNS = 15


def training_methods() -> list[str]:
    """The methods whose clients train, FedAvg first."""
    training = [name for name, method in METHODS.items() if "local" in arguments(method)]
    return sorted(training, key=lambda name: name != "fedavg")


def measure(
    models: Sequence[str] = MODELS,
    methods: Sequence[str] | None = None,
    turns: int = TURNS,
    watcher: Callable[[str, str], None] | None = None,
) -> Iterator[Row]:
    """One row per model and method: the median seconds per round, and their ratio to FedAvg's.

    Methods that do not work with FedAvg's cohorts of ten clients are left out.
    """
    for model in models:
        for method in methods or training_methods():
            if watcher is not None:
                watcher(model, method)
            with suppress(SpecError):
                yield _measured(model, method, turns)


def _measured(model: str, method: str, turns: int) -> Row:
    specs = digits(model, "fedavg"), digits(model, method)
    with one_thread(), closed_after(specs[0]) as fedavg, closed_after(specs[1]) as other:
        fedavg.settle()
        other.settle()
        pairs = [(other.round(), fedavg.round()) for _ in range(turns)]
        return {
            "model": model,
            "method": method,
            "mode": other.mode,
            "seconds_per_round": statistics.median(seconds for seconds, _ in pairs),
            "ratio_to_fedavg": statistics.median(seconds / beside for seconds, beside in pairs),
        }
