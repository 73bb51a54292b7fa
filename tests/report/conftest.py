from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shoal.report.runs import RunView

MakeRun = Callable[..., RunView]


def made(
    label: str = "fedavg", *, seed: int = 0, rounds: int = 4, finished: bool = True, **changes: Any
) -> RunView:
    """A small run whose numbers are simple functions of the round and the seed."""
    spec = {
        "seed": seed,
        "rounds": 4,
        "task": {"dataset": "mnist5k", "model": "lenet"},
        "partition": {"kind": "dirichlet", "clients": 5, "beta": 0.1},
        "method": {"name": label},
        "local": {"lr": 0.01},
    }
    records = [
        {
            "round": r,
            "accuracy": 0.1 * r + 0.01 * seed,
            "loss": 2.0 / r,
            "clients.train_loss": 1.5 / r,
            "mean_client_accuracy": 0.1 * r,
            "worst_client_accuracy": 0.05 * r,
            "client_accuracy_std": 0.02,
            "bytes_up": 1000,
            "bytes_down": 3000,
            "seconds": 0.5,
            "virtual_seconds": None,
            "cohort": [r % 5, (r + 1) % 5],
            "rejected": [],
        }
        for r in range(1, rounds + 1)
    ]
    summary = {
        "method": label,
        "final_accuracy": 0.4 + 0.01 * seed,
        "max_accuracy": 0.4 + 0.01 * seed,
        "mean_accuracy": 0.25,
        "mean_client_accuracy": 0.4,
        "worst_client_accuracy": 0.2,
        "bytes_up": 4000,
        "bytes_down": 12000,
        "seconds": 2.0,
        "virtual_seconds": None,
        "weights_sha256": "ab" * 32,
        "rounds": rounds,
    }
    run = RunView(label, spec, records, summary if finished else {})
    return run._replace(**changes)


@pytest.fixture
def make_run() -> MakeRun:
    return made


@pytest.fixture
def regression() -> RunView:
    """A run that is judged by its error, and only in its second and last round."""
    run = made("fsi")
    drop = ("accuracy", "mean_client_accuracy", "worst_client_accuracy", "client_accuracy_std")
    rounds = [
        {k: v for k, v in row.items() if k not in drop}
        | {"mse": 600.0 / row["round"] ** 3 if row["round"] % 2 == 0 else None}
        for row in run.rounds
    ]
    summary = {k: v for k, v in run.summary.items() if "accuracy" not in k} | {"final_mse": 9.375}
    return run._replace(rounds=rounds, summary=summary)
