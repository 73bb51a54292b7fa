"""The data of each client in a simulation: its training samples and its own test samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shoal.core.client import ClientData
from shoal.core.data import NO_PLAN, Batching, Block, Data, Dataset, Shards, schedule
from shoal.core.errors import SpecError
from shoal.core.key import Key

TEST_SAMPLES = 100  # per client, if the test set is large enough


@dataclass(frozen=True)
class Simulated(ClientData):
    """A data set that is partitioned among clients.

    A client's test samples have the label proportions of its training samples. If the data set comes from
    real sites, they are the site's own; in a regression, they are drawn at random. Clients' test samples may
    overlap.
    """

    dataset: Dataset
    shards: Shards
    key: Key

    def train(self, client: int, batching: Batching | None, key: Key, *, full: bool) -> Data:
        """See `ClientData`."""
        rows, plan = self.shards.indices(client), NO_PLAN
        if batching is not None:
            plan = schedule(np.array([len(rows)]), batching, key.array[None], full=full)
        return Data(self.dataset.x_train, self.dataset.y_train, rows, plan, self.dataset.classes)

    def several(
        self, clients: Sequence[int], batching: Batching | None, words: np.ndarray, *, full: bool
    ) -> list[Data]:
        """See `ClientData`. All schedules are drawn in one call."""
        dataset, held = self.dataset, [self.shards.indices(client) for client in clients]
        plans = [NO_PLAN] * len(held)
        if batching is not None:
            counts = np.array([len(rows) for rows in held])
            plans = schedule(counts, batching, words, full=full).singles(counts)
        return [
            Data(dataset.x_train, dataset.y_train, rows, plan, dataset.classes)
            for rows, plan in zip(held, plans, strict=True)
        ]

    def block(self, clients: Sequence[int], batching: Batching, words: np.ndarray) -> Block:
        """See `ClientData`."""
        rows, counts = self.shards.many(clients)
        plan = schedule(counts, batching, words, full=False)
        return Block(
            self.dataset.x_train,
            self.dataset.y_train,
            rows[plan.order],
            plan.step_ptr,
            plan.client_ptr,
            counts,
            rows,
        )

    def test(self, client: int) -> Data:
        """See `ClientData`."""
        generator = self.key.fold("test", client).numpy()
        if self.dataset.groups_train is not None and self.dataset.groups_test is not None:
            homes = np.unique(self.dataset.groups_train[self.shards.indices(client)])
            return self._tested(np.flatnonzero(np.isin(self.dataset.groups_test, homes)))
        if self.dataset.classes == 0:
            return self.common(client)
        y = self.dataset.y_train[torch.from_numpy(self.shards.indices(client))]
        if not len(y):
            return self._tested(np.empty(0, np.int64))
        shares = torch.bincount(y, minlength=self.dataset.classes).cpu().numpy() / len(y)
        return self._tested(_deal(self.dataset.y_test, shares, generator))

    def common(self, client: int) -> Data:
        """See `ClientData`."""
        generator = self.key.fold("common", client).numpy()
        total = len(self.dataset.y_test)
        return self._tested(generator.choice(total, min(TEST_SAMPLES, total), replace=False))

    def root(self, count: int) -> Data:
        """Training samples that the server holds as well; they also stay with the clients."""
        total = len(self.dataset.y_train)
        if count > total:
            raise SpecError(f"root must be at most {total}, the number of training samples, got {count}")
        rows = np.sort(self.key.fold("root").numpy().choice(total, count, replace=False))
        return Data(self.dataset.x_train, self.dataset.y_train, rows, NO_PLAN, self.dataset.classes)

    def _tested(self, rows: np.ndarray) -> Data:
        dataset = self.dataset
        return Data(dataset.x_test, dataset.y_test, rows.astype(np.int64), NO_PLAN, dataset.classes)


def _deal(labels: Tensor, shares: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Rows whose labels have these shares: `TEST_SAMPLES` rows, or fewer if a class runs out.

    Classes without rows are left out; the others keep their proportions.
    """
    y = labels.cpu().numpy()
    supply = np.bincount(y, minlength=len(shares))
    missing = shares[supply == 0].sum()
    shares = np.where(supply > 0, shares, 0.0)
    if not shares.any():
        return np.empty(0, np.int64)
    shares /= 1 - missing
    held = shares > 0
    most = int(((supply[held] + 1) / shares[held]).min()) + 1  # with more, a class would run out
    totals = range(min(TEST_SAMPLES, most), 0, -1)  # a total of 1 is always possible
    counts = next(fits for total in totals if ((fits := _whole(total, shares)) <= supply).all())
    picked = []
    for label in np.flatnonzero(counts):
        rows = np.flatnonzero(y == label)
        picked.append(generator.permutation(rows)[: counts[label]])
    return np.concatenate(picked)


def _whole(total: int, shares: np.ndarray) -> np.ndarray:
    """Divide `total` into whole numbers proportional to `shares`, by largest remainder."""
    wanted = shares * total
    counts: np.ndarray = np.floor(wanted).astype(np.int64)
    rest = total - counts.sum()
    counts[np.argsort(counts - wanted, kind="stable")[:rest]] += 1
    return counts
