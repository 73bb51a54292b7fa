"""How long a round of every method takes, beside a round of FedAvg."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from shoal.bench.rounds import digits, in_turns, ratio, timed
from shoal.config import arguments
from shoal.methods import METHODS

MODELS = ("mlp", "lenet")
TURNS = 15

Row = dict[str, Any]


def trained_methods() -> list[str]:
    """The methods whose clients train, FedAvg first."""
    training = [name for name, method in METHODS.items() if "local" in arguments(method)]
    return sorted(training, key=lambda name: name != "fedavg")


def measure(
    models: Sequence[str] = MODELS,
    methods: Sequence[str] | None = None,
    turns: int = TURNS,
    watcher: Callable[[str, str], None] | None = None,
) -> list[Row]:
    """A row for each model and method: the median seconds of a round, and their ratio to FedAvg's."""
    rows = []
    for model in models:
        for method in methods or trained_methods():
            if watcher is not None:
                watcher(model, method)
            with timed([digits(model, "fedavg", {}), digits(model, method, {})]) as (fedavg, other):
                beside, seconds = in_turns([fedavg, other], turns)
            rows.append(
                {
                    "model": model,
                    "method": method,
                    "mode": other.engine.mode,
                    "seconds_per_round": statistics.median(seconds),
                    "ratio_to_fedavg": ratio(seconds, beside),
                }
            )
    return rows
