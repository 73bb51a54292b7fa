"""Clustered sampling: one client from each of m distributions that together cover the whole population.

Fraboni, Vidal, Kameni, Lorenzi: Clustered Sampling: Low-Variance and Improved Representativity for Clients
Selection in Federated Learning, ICML 2021. With p_i = n_i / M the share of client i in all M samples, any
distributions W_1, ..., W_m with

    sum_i W_k[i] = 1   and   sum_k W_k[i] = m p_i                      -> `Shares`

make the uniform mean over the draws, one from each W_k, unbiased for sum_i p_i w_i, with a variance no
larger than that of m draws from p.

    Algorithm 1, by size: pour m p_i into bins of capacity 1, the largest clients first     -> `by_size`
    Algorithm 2, by similarity: cut a tree of the clients so that no cluster's mass is above 1 / m, keep the m
    heaviest clusters as bins, pour the clients of the others into what is free        -> `by_similarity`

A client that is drawn several times trains once; `settings["count"]` is the number of draws. All masses are
integers, m n_i in bins of capacity M, so both sums hold exactly.

Departures: a client with m p_i >= 1, which the authors' code limits to one draw, has floor(m p_i) bins of its
own, and only the remainder of its mass is poured. A client that never replied has a zero gradient, whose
angle to every other is taken as 0; angles are clipped before the arccos. A layer that a client did not send
is zero, too. The tree is Ward's, over the rows of the distance matrix, as in the authors' code: clients are
similar if they have similar distances to all others. Shares are relative to the available clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from shoal.core.data import Data
from shoal.core.key import Key
from shoal.core.population import Population
from shoal.core.selector import Selector
from shoal.core.types import Cohort, Moment, Reply, Tree
from shoal.selectors.cohort_size import check_population, check_size, cohort_size
from shoal.selectors.last_updates import LastUpdates


class Shares(NamedTuple):
    """W_1, ..., W_m as integers: a sequence of pieces of clients, cut into bins of mass `capacity`."""

    clients: np.ndarray  # [pieces] int64
    masses: np.ndarray  # [pieces] int64
    capacity: int

    def draw(self, key: Key) -> np.ndarray:
        """[m]: a client from each bin."""
        ends = np.cumsum(self.masses)
        bins = int(ends[-1]) // self.capacity
        points = self.capacity * np.arange(bins) + key.numpy().integers(self.capacity, size=bins)
        return self.clients[np.searchsorted(ends, points, side="right")]


def by_size(counts: np.ndarray, draws: int) -> Shares:
    """Algorithm 1, from the clients' numbers of samples."""
    capacity, own, rest = _dedicated(counts, draws)
    order = np.lexsort((np.arange(len(rest)), -rest))
    borders = capacity * np.arange(1, draws - len(own) + 1)
    return _shares(capacity, own, *_poured(order, rest[order], borders))


def by_similarity(counts: np.ndarray, draws: int, distances: np.ndarray, key: Key) -> Shares:
    """Algorithm 2, from the distances between clients."""
    capacity, own, rest = _dedicated(counts, draws)
    bins = draws - len(own)
    clusters = cut(ward(distances), rest, capacity) if len(rest) > 1 else np.zeros(1, np.int64)
    names, place = np.unique(clusters, return_inverse=True)
    weights = np.bincount(place, weights=rest).astype(np.int64)
    heaviest = np.lexsort((names, -weights))
    rank = np.empty(len(names), np.int64)
    rank[heaviest] = np.arange(len(names))
    rank = rank[place]  # the rank of each client's cluster
    kept, others = np.flatnonzero(rank < bins), np.flatnonzero(rank >= bins)
    others = key.numpy().permutation(others)
    others = others[np.argsort(-rank[others], kind="stable")]  # the lightest cluster first
    free = capacity - np.bincount(rank[kept], weights=rest[kept], minlength=bins).astype(np.int64)
    where, whose, masses = _poured(others, rest[others], np.cumsum(free))
    return _shares(
        capacity,
        own,
        np.concatenate([rank[kept], where]),
        np.concatenate([kept, whose]),
        np.concatenate([rest[kept], masses]),
    )


def _dedicated(counts: np.ndarray, draws: int) -> tuple[int, np.ndarray, np.ndarray]:
    """The capacity of a bin, the clients of the bins with a single client, and each client's remainder."""
    capacity = int(counts.sum())
    whole, rest = np.divmod(draws * counts, capacity)
    return capacity, np.repeat(np.arange(len(counts)), whole), rest


def _poured(
    clients: np.ndarray, masses: np.ndarray, borders: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bins, clients and masses of the pieces, when the sequence of clients is cut at the bins' borders."""
    ends = np.cumsum(masses)
    edges = np.union1d(ends, borders)
    edges = edges[edges > 0]
    sizes = np.diff(edges, prepend=0)
    return np.searchsorted(borders, edges), clients[np.searchsorted(ends, edges)], sizes


def _shares(
    capacity: int, own: np.ndarray, bins: np.ndarray, clients: np.ndarray, masses: np.ndarray
) -> Shares:
    """The filled bins, followed by those with a single client."""
    order = np.argsort(bins, kind="stable")
    return Shares(
        np.concatenate([clients[order], own]),
        np.concatenate([masses[order], np.full(len(own), capacity)]),
        capacity,
    )


def ward(distances: np.ndarray) -> np.ndarray:
    """Ward's tree over the rows of a distance matrix."""
    from scipy.cluster.hierarchy import linkage  # slow to import, and only needed here
    from scipy.spatial.distance import pdist

    return linkage(pdist(distances), "ward")  # type: ignore[no-any-return]


def cut(tree: np.ndarray, masses: np.ndarray, limit: int) -> np.ndarray:
    """[clients]: for each client, the largest branch that contains it and whose mass is within the limit."""
    held, joined = masses.tolist(), tree[:, :2].astype(int).tolist()
    for left, right in joined:
        held.append(held[left] + held[right])
    branch = list(range(len(held)))
    for node in reversed(range(len(masses), len(held))):
        if held[node] <= limit:
            for child in joined[node - len(masses)]:
                branch[child] = branch[node]
    return np.array(branch[: len(masses)])


class Seen(NamedTuple):
    """The selector's state: what is known about the clients."""

    counts: Mapping[int, int]  # numbers of samples, for clients that reported them
    last: LastUpdates


@dataclass(frozen=True)
class Clustered(Selector):
    """Samples clients by their number of samples, spread over clusters of similar size or similar updates."""

    by_samples: ClassVar[bool] = True

    count: int | None = None
    fraction: float | None = None
    by: Literal["size", "cosine", "l2", "l1"] = (
        "cosine"  # Algorithm 1; or the distance of updates in Algorithm 2
    )

    def __post_init__(self) -> None:
        check_size(self.count, self.fraction)

    def init(self) -> Seen:
        """See `Selector`."""
        return Seen({}, LastUpdates({}))

    def profile(self, data: Data) -> int:
        """See `Selector`."""
        return data.count

    def admit(self, state: Seen, profiles: Mapping[int, int]) -> Seen:
        """See `Selector`."""
        state = state._replace(counts={**state.counts, **profiles})
        return state if self.by == "size" else state._replace(last=state.last.all_compared(self.by))

    def select(
        self, state: Seen, available: Population, reports: Mapping[int, Tree], moment: Moment
    ) -> Cohort:
        """See `Selector`. The setting `count` of a member is its number of draws."""
        counts = counts_of(state, available)
        draws = cohort_size(self.count, self.fraction, len(available))
        if self.by == "size":
            shares = by_size(counts, draws)
        else:
            distances = state.last.distances(available, self.by)
            shares = by_similarity(counts, draws, distances, moment.key.fold("pour"))
        drawn, often = np.unique(shares.draw(moment.key.fold("draw")), return_counts=True)
        ids = tuple(available[int(position)] for position in drawn)
        return Cohort(ids, {"count": tuple(often.tolist())}, len(available))

    def observe(self, state: Seen, client: int, reply: Reply, seconds: float) -> Seen:
        """See `Selector`. If clients return no updates, all clients count as similar."""
        update = getattr(reply.payload, "update", None)
        if self.by == "size" or update is None:
            return state
        return state._replace(last=state.last.with_update(client, update.params))

    def check(self, population: int) -> None:
        """See `Selector`."""
        check_population(self.count, population)


def counts_of(state: Seen, available: Population) -> np.ndarray:
    """[available] int64: the clients' numbers of samples; all 1 if none is known."""
    counts = np.array([state.counts.get(client, 0) for client in available], np.int64)
    return counts if counts.any() else np.ones_like(counts)
