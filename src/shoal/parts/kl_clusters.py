"""Clusters of clients whose labels together come close to a target mix.

SITUA-CQ, step 2: a cluster starts empty and repeatedly adds the client that brings its labels closest to the
target, until their divergence from it is at most a threshold.

    argmin_k KL( normalised(sum_{i in S} P_i + P_k) || T ),  natural logarithm, 0 log 0 = 0
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

Greed = Literal["printed", "released"]

ROUNDING = 1e-12  # divergences of equal distributions are of this order, on either side of 0


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
    cluster, whether or not it reaches the threshold. With `waited`, a number for each client, a cluster's
    first member is one with the highest number.
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


@lru_cache(maxsize=8)  # labels do not change, so the same clients form the same clusters
def _clusters(
    shares: bytes,
    shape: tuple[int, int],
    goal: bytes,
    threshold: float,
    greed: Greed,
    waited: tuple[int, ...],
) -> tuple[tuple[int, ...], ...]:
    from shoal.kernels.label_balance import greedy  # few runs need it

    rows, target = np.frombuffer(shares).reshape(shape), np.frombuffer(goal)
    wait = np.array(waited or (0,) * len(rows), np.int64)
    members, ends = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    with np.errstate(divide="ignore"):
        count = greedy(rows, np.log(target), threshold, greed == "released", wait, members, ends)
    begins = [0, *ends[: max(count - 1, 0)].tolist()]
    return tuple(
        tuple(members[first:end].tolist()) for first, end in zip(begins, ends[:count].tolist(), strict=False)
    )


def divergence(sums: np.ndarray, target: np.ndarray) -> np.ndarray:
    """[n]: KL divergence of each row of `sums` [n, classes], normalised, from the target; never below 0."""
    shares = sums / np.maximum(sums.sum(1, keepdims=True), ROUNDING)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(shares > 0, shares * np.log(shares / target), 0.0)
    return np.asarray(np.maximum(terms.sum(1), 0.0))
