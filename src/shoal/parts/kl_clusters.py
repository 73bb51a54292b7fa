"""Clusters of clients whose labels together come close to a target mix.

SITUA-CQ, step 2: a cluster starts empty and takes, one after another, the client with which its labels are
nearest to the target, until their divergence from it is at most a threshold.

    argmin_k KL( normalised(sum_{i in S} P_i + P_k) || T ),  natural logarithm, 0 log 0 = 0
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

Greed = Literal["printed", "released"]

ROUNDING = 1e-12  # divergences of equal distributions are of this size, on either side of 0


def kl_clusters(
    histograms: np.ndarray,
    target: np.ndarray,
    threshold: float,
    greed: Greed = "printed",
    waited: Sequence[int] = (),
) -> list[list[int]]:
    """Lists of rows of `histograms` [clients, classes], in the order in which the clients joined.

    "printed": as in the algorithm; a last cluster that does not reach the threshold is dropped. "released":
    as in the authors' code, which adds a client only if that lowers the divergence, and otherwise closes the
    cluster, near enough or not. With `waited`, a number for each client, a cluster's first member is one with
    the highest number.
    """
    shares = np.asarray(histograms, np.float64)
    shares = shares / np.maximum(shares.sum(1, keepdims=True), ROUNDING)
    goal = np.asarray(target, np.float64)
    return [
        list(members)
        for members in _clusters(
            shares.tobytes(), shares.shape, (goal / goal.sum()).tobytes(), threshold, greed, tuple(waited)
        )
    ]


@lru_cache(maxsize=8)  # labels stay as they are, and so do the clusters of the same clients
def _clusters(
    shares: bytes,
    shape: tuple[int, int],
    goal: bytes,
    threshold: float,
    greed: Greed,
    waited: tuple[int, ...],
) -> tuple[tuple[int, ...], ...]:
    rows, target = np.frombuffer(shares).reshape(shape), np.frombuffer(goal)
    free = np.arange(len(rows))
    wait = np.array(waited) if waited else np.zeros(len(rows), np.int64)
    found: list[tuple[int, ...]] = []
    while len(free):
        members, closed = _one(rows, target, threshold, greed, free, wait)
        if closed:
            found.append(tuple(members))
        free = free[~np.isin(free, members)]
    return tuple(found)


def _one(
    rows: np.ndarray, target: np.ndarray, threshold: float, greed: Greed, free: np.ndarray, wait: np.ndarray
) -> tuple[list[int], bool]:
    """The members of one more cluster, and whether it counts."""
    total, members, now = np.zeros(rows.shape[1]), list[int](), np.inf
    while len(free):
        able = free if members else free[wait[free] == wait[free].max()]
        apart = divergence(total + rows[able], target)
        best = int(apart.argmin())
        if greed == "released" and members and apart[best] >= now:
            return members, True
        now = float(apart[best])
        members.append(int(able[best]))
        total = total + rows[able[best]]
        free = free[free != able[best]]
        if now <= threshold + ROUNDING:
            return members, True
    return members, greed == "released"


def divergence(sums: np.ndarray, target: np.ndarray) -> np.ndarray:
    """[n]: KL of each row of `sums` [n, classes], normalised, from the target; never below 0."""
    shares = sums / np.maximum(sums.sum(1, keepdims=True), ROUNDING)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(shares > 0, shares * np.log(shares / target), 0.0)
    return np.asarray(np.maximum(terms.sum(1), 0.0))
