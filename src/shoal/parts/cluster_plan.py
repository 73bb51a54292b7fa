"""Which clusters take part in a round of SITUA-CQ, and in which number formats.

R = sum over members of (compute + down + up), by format: compute / 1.46 and / 1.81, links / 2 and / 4
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from shoal.core.devices import BITS, SPEED_UP
from shoal.core.types import Report
from shoal.parts.kl_clusters import Greed, kl_clusters

LEVELS = ("float32", "float16", "e5m2")  # number formats, from many bits to few
EPSILON = 1e-9  # tolerance for quotas, which are products of shares


class Thresholds(NamedTuple):
    """The parameters of a plan."""

    theta_d: float  # largest divergence of a cluster's labels from the target
    theta_k: float  # clients to choose: a share up to 1, a number above 1
    theta_b: tuple[float, ...]  # shares of the chosen clients at each level
    pool: float  # the fastest share of the clients, which is clustered
    aggregate: Literal["model", "delta"]


class RoundPlan(NamedTuple):
    """The plan of a round: the chosen clusters, from the fastest to the slowest."""

    clusters: tuple[tuple[int, ...], ...]  # client ids
    formats: tuple[str, ...]  # of each cluster
    seconds: tuple[float, ...]  # the estimated time of each, in its format
    unused: tuple[int, ...]  # clients that are in no cluster


def plan(
    values: Thresholds,
    histograms: Mapping[int, Sequence[int]],
    reports: Mapping[int, Report],
    model_bytes: int,
    clustering: Greed = "printed",
    waited: Mapping[int, int] | None = None,
) -> RoundPlan:
    """The clusters of a round, their formats and estimated times."""
    alone = {client: round_time([report], model_bytes, "float32") for client, report in reports.items()}
    fastest = sorted(alone, key=lambda client: (alone[client], client))
    pool = sorted(fastest[: max(1, math.ceil(values.pool * len(fastest) - EPSILON))])
    if not pool:
        return RoundPlan((), (), (), ())
    rows = np.array([histograms[client] for client in pool], np.float64)
    order = [waited[client] for client in pool] if waited else ()
    groups = kl_clusters(rows, np.ones(rows.shape[1]), values.theta_d, clustering, order)
    found = [tuple(pool[i] for i in members) for members in groups]
    times = {members: round_time([reports[c] for c in members], model_bytes, "float32") for members in found}
    wanted = values.theta_k if values.theta_k > 1 else values.theta_k * len(reports)
    chosen: list[tuple[int, ...]] = []
    for members in sorted(found, key=lambda members: (times[members], members)):
        if sum(map(len, chosen)) >= wanted - EPSILON:
            break
        chosen.append(members)
    formats = levels([len(members) for members in chosen], values.theta_b)
    seconds = [
        round_time([reports[c] for c in members], model_bytes, name)
        for members, name in zip(chosen, formats, strict=True)
    ]
    taken = {client for members in found for client in members}
    unused = tuple(client for client in sorted(reports) if client not in taken)
    return RoundPlan(tuple(chosen), tuple(formats), tuple(seconds), unused)


def round_time(members: Sequence[Report], model_bytes: int, name: str) -> float:
    """R: the time in which the members of a cluster train one after another in a number format."""
    size = model_bytes * BITS[name] / 32
    if any(m.down <= 0 or m.up <= 0 for m in members):
        return math.inf  # nothing gets through
    return sum(m.compute / SPEED_UP[name] + size / m.down + size / m.up + 2 * m.latency for m in members)


def levels(sizes: Sequence[int], quotas: Sequence[float]) -> list[str]:
    """The format of each cluster, fastest first: when a format's quota of clients is full, the next lower one
    follows."""
    total, level, given = sum(sizes), 0, 0
    found = []
    for size in sizes:
        while level < len(quotas) - 1 and given >= sum(quotas[: level + 1]) * total - EPSILON:
            level += 1
        found.append(LEVELS[level])
        given += size
    return found
