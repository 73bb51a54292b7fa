"""Greedy clusters of clients whose labels together come close to a target; see `parts/kl_clusters.py`."""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int64

from shoal.kernels.jit import given, inner, kernel

ROUNDING = 1e-12  # divergences of equal distributions are of this size, on either side of 0


@inner
def _apart(total: np.ndarray, row: np.ndarray, count: float, logs: np.ndarray) -> float:
    """KL divergence of (total + row) / count from the target, whose logarithms are `logs`; never below 0."""
    found = 0.0
    for label in range(len(row)):
        share = (total[label] + row[label]) / count
        if share > 0:
            found += share * (np.log(share) - logs[label])
    return max(found, 0.0)


@kernel(
    int64(given(float64, 2), given(float64, 1), float64, boolean, given(int64, 1), int64[::1], int64[::1])
)
def greedy(
    rows: np.ndarray,
    logs: np.ndarray,
    threshold: float,
    released: bool,
    waited: np.ndarray,
    members: np.ndarray,
    ends: np.ndarray,
) -> int:
    """The number of clusters. `members` receives one cluster after another; `ends`, where each one ends.

    `rows` [clients, classes] are shares. `released` closes a cluster when no client lowers its divergence.
    """
    clients, classes = rows.shape
    free = np.arange(clients)
    left, placed, clusters = clients, 0, 0
    total = np.zeros(classes)
    while left:
        total[:] = 0.0
        begin, now, closed = placed, np.inf, released
        while left:
            first = placed == begin
            longest = np.int64(-(2**62))
            if first:
                for i in range(left):
                    longest = max(longest, waited[free[i]])
            best, place = np.inf, -1
            for i in range(left):
                if first and waited[free[i]] < longest:
                    continue
                apart = _apart(total, rows[free[i]], placed - begin + 1.0, logs)
                if place < 0 or apart < best:
                    best, place = apart, i
            if released and not first and best >= now:
                break
            now, chosen = best, free[place]
            members[placed] = chosen
            placed += 1
            for label in range(classes):
                total[label] += rows[chosen, label]
            for i in range(place, left - 1):  # keeps the clients in order: ties go to the first
                free[i] = free[i + 1]
            left -= 1
            if now <= threshold + ROUNDING:
                closed = True
                break
        if closed:
            ends[clusters] = placed
            clusters += 1
        else:
            placed = begin
    return clusters
