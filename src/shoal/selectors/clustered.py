"""Clustered sampling: one client from each of m distributions that together are the whole population.

Fraboni, Vidal, Kameni, Lorenzi: Clustered Sampling: Low-Variance and Improved Representativity for Clients
Selection in Federated Learning, ICML 2021. With p_i = n_i / M the share of client i in all M samples, any
distributions W_1, ..., W_m with

    sum_i W_k[i] = 1   and   sum_k W_k[i] = m p_i                      -> `Shares`

make the uniform mean over the draws, one from each W_k, unbiased for sum_i p_i w_i, with a variance no
larger than that of m draws from p.

    Algorithm 1, by size: pour m p_i into bins of capacity 1, the largest clients first     -> `by_size`
    Algorithm 2, by similarity: cut a tree of the clients so that no cluster's mass is above 1 / m, keep the m
    heaviest clusters as bins, pour the clients of the others into what is free        -> `by_similarity`

A client that is drawn several times trains once, and `settings["count"]` says how often it was drawn. All
masses are whole numbers, m n_i in bins of capacity M, so both sums hold exactly.

Departures: a client with m p_i >= 1, which the authors' code cuts down to one draw, has floor(m p_i) bins of
its own, and only the rest of its mass is poured. A client that never replied has a gradient of zeros, whose
angle to every other is taken as 0; angles are clipped before the arccos. The tree is Ward's, over the rows of
the matrix of distances, as the authors' code has it: clients are alike if they lie at like distances from all
others. Shares are those among the clients that can be reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.data import Data
from shoal.core.flat import Flat
from shoal.core.key import Key
from shoal.core.population import Population
from shoal.core.selector import Selector
from shoal.core.threads import cores, side_by_side
from shoal.core.types import Cohort, Moment, Reply, Tree
from shoal.kernels.products import products
from shoal.selectors.cohort_size import check_population, check_size, cohort_size

Distance = Literal["cosine", "l2", "l1"]
PIECE = 2**16  # parameters whose L1 distances are taken at once


class Shares(NamedTuple):
    """W_1, ..., W_m in whole numbers: pieces of clients in a row, of which every `capacity` fill a bin."""

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
    """Algorithm 1, for clients with these numbers of samples."""
    capacity, own, rest = _dedicated(counts, draws)
    order = np.lexsort((np.arange(len(rest)), -rest))
    borders = capacity * np.arange(1, draws - len(own) + 1)
    return _shares(capacity, own, *_poured(order, rest[order], borders))


def by_similarity(counts: np.ndarray, draws: int, distances: np.ndarray, key: Key) -> Shares:
    """Algorithm 2, for clients at these distances from one another."""
    capacity, own, rest = _dedicated(counts, draws)
    bins = draws - len(own)
    clusters = cut(ward(distances), rest, capacity) if len(rest) > 1 else np.zeros(1, np.int64)
    names, place = np.unique(clusters, return_inverse=True)
    weights = np.bincount(place, weights=rest).astype(np.int64)
    heaviest = np.lexsort((names, -weights))
    rank = np.empty(len(names), np.int64)
    rank[heaviest] = np.arange(len(names))
    rank = rank[place]  # of each client's cluster
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
    """The capacity of a bin; the client of each bin that holds one client only; what is left of each."""
    capacity = int(counts.sum())
    whole, rest = np.divmod(draws * counts, capacity)
    return capacity, np.repeat(np.arange(len(counts)), whole), rest


def _poured(
    clients: np.ndarray, masses: np.ndarray, borders: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bins, clients and masses of the pieces, with clients in a row and a border at the end of each bin."""
    ends = np.cumsum(masses)
    edges = np.union1d(ends, borders)
    edges = edges[edges > 0]
    sizes = np.diff(edges, prepend=0)
    return np.searchsorted(borders, edges), clients[np.searchsorted(ends, edges)], sizes


def _shares(
    capacity: int, own: np.ndarray, bins: np.ndarray, clients: np.ndarray, masses: np.ndarray
) -> Shares:
    """The bins that were poured, and after them those of one client."""
    order = np.argsort(bins, kind="stable")
    return Shares(
        np.concatenate([clients[order], own]),
        np.concatenate([masses[order], np.full(len(own), capacity)]),
        capacity,
    )


def ward(distances: np.ndarray) -> np.ndarray:
    """Ward's tree over the rows of a matrix of distances."""
    from scipy.cluster.hierarchy import linkage  # slow to import, and only needed here
    from scipy.spatial.distance import pdist

    return linkage(pdist(distances), "ward")  # type: ignore[no-any-return]


def cut(tree: np.ndarray, masses: np.ndarray, limit: int) -> np.ndarray:
    """[clients]: the largest branch of the tree around each client whose mass is not above the limit."""
    held, joined = masses.tolist(), tree[:, :2].astype(int).tolist()
    for left, right in joined:
        held.append(held[left] + held[right])
    branch = list(range(len(held)))
    for node in reversed(range(len(masses), len(held))):
        if held[node] <= limit:
            for child in joined[node - len(masses)]:
                branch[child] = branch[node]
    return np.array(branch[: len(masses)])


def distances_between(gradients: Sequence[Tensor], distance: Distance) -> np.ndarray:
    """[n, n] float64: arccos of the cosine, squared L2 or L1 distances of flat gradients."""
    return _apart(_pairs(gradients, gradients, distance), distance)


def _pairs(some: Sequence[Tensor], others: Sequence[Tensor], distance: Distance) -> np.ndarray:
    """[some, others] float64: the L1 distances of flat gradients, or the inner products that say the other
    distances. A pair's does not depend on which others are compared at the same time."""
    if distance != "l1":
        rows, columns = ([one.numpy() for one in group] for group in (some, others))
        size = -(-len(columns) // cores())
        pieces = [columns[first : first + size] for first in range(0, len(columns), size)]
        return np.concatenate(side_by_side(lambda piece: products(rows, piece), pieces), 1)
    total = torch.zeros(len(some), len(others), dtype=torch.float64)
    for first in range(0, len(some[0]), PIECE):
        here, there = (
            torch.stack([g[first : first + PIECE] for g in group]).double() for group in (some, others)
        )
        total += torch.cdist(here, there, p=1)
    return total.numpy()


def _apart(found: np.ndarray, distance: Distance) -> np.ndarray:
    """[n, n] float64: the distances, from what `_pairs` says of all."""
    if distance == "l1":
        return found
    squares = np.diag(found)
    if distance == "l2":
        apart: np.ndarray = np.maximum(squares[:, None] + squares - 2 * found, 0)
    else:
        norms = np.sqrt(np.outer(squares, squares))
        cosines = np.divide(found, norms, out=np.ones_like(found), where=norms > 0)
        apart = np.arccos(np.clip(cosines, -1, 1))
    np.fill_diagonal(apart, 0)  # where rounding left something
    return apart


class Compared(NamedTuple):
    """The gradients that were compared, and what `_pairs` says of them; the first is a gradient of zeros."""

    clients: tuple[int, ...]
    pairs: Tensor  # [1 + clients, 1 + clients] float64


class Seen(NamedTuple):
    """What is remembered of the clients."""

    counts: Mapping[int, int]  # samples of each that told
    gradients: Mapping[int, Tensor]  # [parameters]: the last update of each that replied
    compared: Compared = Compared((), torch.zeros(1, 1, dtype=torch.float64))
    changed: tuple[int, ...] = ()  # whose gradients are new since they were compared


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
        return Seen({}, {})

    def profile(self, data: Data) -> int:
        """See `Selector`."""
        return data.count

    def admit(self, state: Seen, profiles: Mapping[int, int]) -> Seen:
        """See `Selector`."""
        state = state._replace(counts={**state.counts, **profiles})
        if self.by == "size":
            return state
        return state._replace(compared=compared(state, self.by), changed=())

    def select(
        self, state: Seen, available: Population, reports: Mapping[int, Tree], moment: Moment
    ) -> Cohort:
        """See `Selector`. The count of a member is how often it was drawn."""
        counts = counts_of(state, available)
        draws = cohort_size(self.count, self.fraction, len(available))
        if self.by == "size":
            shares = by_size(counts, draws)
        else:
            distances = _spread(compared(state, self.by), available, self.by)
            shares = by_similarity(counts, draws, distances, moment.key.fold("pour"))
        drawn, often = np.unique(shares.draw(moment.key.fold("draw")), return_counts=True)
        ids = tuple(available[int(position)] for position in drawn)
        return Cohort(ids, {"count": tuple(often.tolist())}, len(available))

    def observe(self, state: Seen, client: int, reply: Reply, seconds: float) -> Seen:
        """See `Selector`. To methods whose clients return no update all clients are alike."""
        update = getattr(reply.payload, "update", None)
        if self.by == "size" or update is None:
            return state
        gradient = flattened(update.params)
        changed = (*(other for other in state.changed if other != client), client)
        return state._replace(gradients={**state.gradients, client: gradient}, changed=changed)

    def check(self, population: int) -> None:
        """See `Selector`."""
        check_population(self.count, population)


def flattened(params: Mapping[str, Tensor]) -> Tensor:
    """[parameters] float32: a copy, as a view would keep the whole reply."""
    if isinstance(params, Flat):
        return params.vector.detach().to("cpu", torch.float32, copy=True)
    return torch.cat([value.detach().reshape(-1).float().cpu() for value in params.values()])


def counts_of(state: Seen, available: Population) -> np.ndarray:
    """[available] int64: the clients' numbers of samples; all alike where none told."""
    counts = np.array([state.counts.get(client, 0) for client in available], np.int64)
    return counts if counts.any() else np.ones_like(counts)


def compared(state: Seen, distance: Distance) -> Compared:
    """All gradients that are remembered: only those that are new are compared with the others."""
    if not state.changed:
        return state.compared
    before, new = state.compared, set(state.changed)
    clients = (*(client for client in before.clients if client not in new), *state.changed)
    nothing = torch.zeros_like(state.gradients[clients[0]])
    gradients = [nothing, *(state.gradients[client] for client in clients)]
    old = len(gradients) - len(new)
    place = {client: row for row, client in enumerate(before.clients, 1)}
    rows = [0, *(place[client] for client in clients[: old - 1])]
    pairs = np.empty((len(gradients), len(gradients)))
    pairs[:old, :old] = before.pairs.numpy()[np.ix_(rows, rows)]
    pairs[old:] = _pairs(gradients[old:], gradients, distance)
    pairs[:old, old:] = pairs[old:, :old].T
    return Compared(clients, torch.from_numpy(pairs))


def _spread(known: Compared, available: Population, distance: Distance) -> np.ndarray:
    """[available, available]: distances. Those who never replied share one row, of a gradient of zeros."""
    place = {client: row for row, client in enumerate(known.clients, 1)}
    rows = [place.get(client, 0) for client in available]
    return _apart(known.pairs.numpy(), distance)[np.ix_(rows, rows)]
