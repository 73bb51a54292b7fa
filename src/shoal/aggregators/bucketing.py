"""Bucketing: averages small groups of clients before applying any other aggregation rule.

Karimireddy, He, Jaggi: Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing, ICLR 2022,
Algorithm 1.

    shuffle the clients;   y_k = mean of D_i over the k-th `size` of them        -> `buckets`
    step = other rule(y_1, y_2, ...)

Bucket means are more similar to each other than single updates are, so rules that follow the majority do less
harm on non-IID data. An attacker spoils a whole bucket, so the other rule must expect the same number of
attackers among fewer inputs.

Departures: the last bucket may be smaller. If the other rule has a state per client, the state of a bucket is
that of its member with the smallest id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.aggregators.aggregator import Aggregator, Outcome
from shoal.aggregators.geomedian import GeometricMedian
from shoal.aggregators.matrix import NO_STEP, Decision, MatrixRule, UpdateMatrix
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.threads import parallel_map
from shoal.core.types import Moment, Weights
from shoal.kernels.products import mixtures


def buckets(n: int, size: int, key: Key) -> Tensor:
    """[buckets, n] float64: the weights of the clients in each bucket's mean."""
    order = key.numpy().permutation(n)
    held = torch.zeros(-(-n // size), n, dtype=torch.float64)
    for k in range(len(held)):
        members = order[k * size : (k + 1) * size]
        held[k, members] = 1 / len(members)
    return held


def averaged(rows: Tensor, held: Tensor) -> Tensor:
    """[buckets, numbers]: the mean of the rows [n, numbers] of each bucket."""
    if rows.device.type != "cpu" or rows.dtype != torch.float32:
        return (held.to(rows.device) @ rows.double()).to(rows.dtype)
    means, numbers = torch.empty(len(held), rows.shape[1]), rows.contiguous().numpy()

    def fill(k: int) -> None:
        counts = held[k].numpy()
        members = np.flatnonzero(counts)
        mixtures(counts[None, members], [numbers[i] for i in members], means[k : k + 1].numpy())

    parallel_map(fill, range(len(held)))
    return means


@dataclass(frozen=True)
class Bucketing(MatrixRule):
    """Averages updates in random buckets, and applies another aggregation rule to the bucket means."""

    rule: Aggregator = field(default_factory=GeometricMedian)
    size: int = 2  # clients in a bucket

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SpecError(f"size must be at least 1, got {self.size}; 2 is usual")
        if not isinstance(self.rule, MatrixRule):
            raise SpecError(
                f"bucketing needs a rule that sees all updates, such as krum or median; "
                f"{type(self.rule).__name__} does not"
            )

    def check_cohort(self, clients: int) -> None:
        """See `Aggregator`."""
        self.rule.check_cohort(-(-clients // self.size))

    def init(self, model: Weights) -> Any:
        """See `Aggregator`."""
        return self.rule.init(model)

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`. There is no key to draw buckets with, so every client is its own bucket."""
        return self._decided(state, updates, torch.eye(len(updates.ids), dtype=torch.float64))

    def finish(self, task: Task, state: Any, acc: UpdateMatrix, moment: Moment) -> Outcome:
        """See `Aggregator`."""
        came = acc.arrived()
        if not came.ids:
            return Outcome(state, NO_STEP)
        held = buckets(len(came.ids), self.size, moment.key.fold("buckets"))
        ranks = np.argsort(np.argsort(came.ids))  # clients are shuffled in the order of their ids
        return self._decided(state, came, held[:, ranks]).outcome(came)

    def _decided(self, state: Any, updates: UpdateMatrix, held: Tensor) -> Decision:
        assert isinstance(self.rule, MatrixRule)
        smallest = [min(updates.ids[i] for i in np.flatnonzero(row)) for row in held]
        held = held[np.argsort(smallest)]
        means = updates._replace(
            ids=tuple(sorted(smallest)),
            rows=averaged(updates.rows, held),
            weights=held @ updates.weights,
        )
        found = self.rule.decide(state, means)
        return Decision(found.state, found.step, found.weights @ held)
