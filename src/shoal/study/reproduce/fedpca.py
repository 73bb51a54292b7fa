"""Federated PCA by merging subspaces: how much energy of all samples the merged subspace captures.

It is compared with the principal components of the pooled samples, on digits of clients with different label
mixes. Nothing is trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from shoal.core.key import Key
from shoal.parts.subspace import merged, subspace
from shoal.runs.runner import closing
from shoal.spec import from_table
from shoal.study.reproduce.experiment import ComparisonTable, Experiment, Findings, RunJobs, compared

SUMMARY = "Merged client subspaces against the principal components of the pooled samples"
REFERENCE = (
    "Grammenos, Mendoza-Smith, Crowcroft, Mascolo, Federated Principal Component Analysis, NeurIPS 2020"
)

CLIENTS, SEEDS = 20, 3
SPLITS: Mapping[str, Mapping[str, Any]] = {
    "alike": {"kind": "iid"},
    "Dirichlet 0.5": {"kind": "dirichlet", "beta": 0.5},
}
RANKS = (5, 10, 20, 40)


def held(split: Mapping[str, Any], seed: int) -> list[Tensor]:
    """The samples of each client, [samples, pixels]."""
    table = {
        "seed": seed,
        "task": {"dataset": "mnist5k", "model": "linear"},
        "partition": {**split, "clients": CLIENTS},
    }
    with closing(from_table(table)) as setup:
        data, key = setup.side.data, Key.from_seed(0)
        own = (data.train(client, None, key, full=False).all[0] for client in range(CLIENTS))
        return [x.reshape(len(x), -1).double() for x in own]


def merging(run_jobs: RunJobs) -> Findings:
    """The share of captured energy by rank: merged in two orders, and from the pooled samples."""
    cells, numbers = [], []
    for name, split in SPLITS.items():
        clients = [held(split, seed) for seed in range(SEEDS)]
        for rank in RANKS:
            ways: dict[str, list[float]] = {"in one place": [], "merged": [], "merged backwards": []}
            for samples in clients:
                whole, cut = torch.cat(samples), [subspace(x, rank) for x in samples if len(x)]
                ways["in one place"].append(100 * subspace(whole, rank).captured(whole))
                ways["merged"].append(100 * merged(cut, rank).captured(whole))
                ways["merged backwards"].append(100 * merged(cut[::-1], rank).captured(whole))
            cells += [compared(f"{name}, rank {rank}", way, None, found) for way, found in ways.items()]
    for rank in RANKS:
        pixels = clients[0][0].shape[1]
        sizes = {"a client sends": rank * (pixels + 1), "its samples": pixels * _count(clients[0]) / CLIENTS}
        numbers += [compared(f"rank {rank}", column, None, [float(size)]) for column, size in sizes.items()]
    remark = f"mnist5k, {CLIENTS} clients, mean and standard deviation over {SEEDS} seeds."
    return Findings(
        [
            ComparisonTable("Captured energy of all samples (%)", cells, "clients, rank", 2, remark),
            ComparisonTable("Numbers", numbers, "", 0, "Mean over clients."),
        ],
        notes=["As in the paper, samples are not centred; the mean is a direction of its own."],
    )


def _count(samples: list[Tensor]) -> int:
    return sum(len(x) for x in samples)


EXPERIMENT = Experiment(SUMMARY, REFERENCE, {"quick": merging, "machine": merging, "paper": merging})
