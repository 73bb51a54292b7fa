"""Clusters of clients with similar signatures; see `signature.py`.

Clients are grouped once, by one of four rules. A client that joins later goes to the nearest cluster, whose
centre moves:

    u_k <- (N_k u_k + u_i) / (N_k + 1)          GENE-FL, Algorithm 2, line 11          -> `Clusters.joined`
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from shoal.core.key import Key
from shoal.parts.signature import distances, mean_projector, products, with_member

Rule = Literal["kmeans", "kmedoids", "linkage", "literal"]

RESTARTS = 10  # of k-means and k-medoids, which find local minima
SMALLEST = 1e-12  # eigenvalues below this share of the largest are rounding errors
DIGITS = 9  # to which coordinates are rounded; they are at most the root of the rank
MOST_MOVES = 100  # most iterations of k-medoids


class Clusters(NamedTuple):
    """The clusters so far: their centres, and the clients that joined them."""

    rule: Rule
    centres: tuple[Tensor, ...]  # mean projectors as in `signature.py`; literal: mean signatures
    sizes: tuple[int, ...]
    homes: Mapping[int, int]  # client -> cluster

    @classmethod
    def empty(cls, rule: Rule) -> Clusters:
        """Before any client has joined."""
        return cls(rule, (), (), {})

    def home(self, client: int) -> int:
        """The client's cluster; the largest one for a client that has not sent a signature."""
        return self.homes.get(client, int(np.argmax(self.sizes)) if self.sizes else 0)

    def founded(self, signatures: Mapping[int, Tensor], count: int, key: Key) -> Clusters:
        """The first clusters, at most `count`, formed from these clients."""
        ids, members = list(signatures), list(signatures.values())
        labels = _numbered(_grouped(self.rule, members, min(count, len(members)), key))
        groups = [[members[i] for i in np.flatnonzero(labels == k)] for k in range(labels.max() + 1)]
        return Clusters(
            self.rule,
            tuple(map(self._centre, groups)),
            tuple(map(len, groups)),
            dict(zip(ids, labels.tolist(), strict=True)),
        )

    def joined(self, signatures: Mapping[int, Tensor], count: int) -> Clusters:
        """The clusters with more clients. Each founds one, or joins the nearest if there are `count`."""
        centres, sizes, homes = list(self.centres), list(self.sizes), dict(self.homes)
        for client, member in signatures.items():
            home = len(centres) if len(centres) < count else _nearest(self.rule, centres, member)
            if home == len(centres):
                centres.append(self._centre([member]))
                sizes.append(0)
            elif self.rule == "literal":
                centres[home] = (sizes[home] * centres[home] + member.double()) / (sizes[home] + 1)
            else:
                centres[home] = with_member(centres[home], sizes[home], member)
            sizes[home] += 1
            homes[client] = home
        return Clusters(self.rule, tuple(centres), tuple(sizes), homes)

    def _centre(self, members: Sequence[Tensor]) -> Tensor:
        if self.rule == "literal":
            return torch.stack([one.double() for one in members]).mean(0)
        return mean_projector(members)


def _nearest(rule: Rule, centres: Sequence[Tensor], member: Tensor) -> int:
    """The cluster whose centre is nearest to a signature."""
    if rule == "literal":
        return int(np.argmin([float((member.double() - centre).norm()) for centre in centres]))  # eq. 12
    return int(distances([member], centres)[0].argmin())


def _grouped(rule: Rule, members: Sequence[Tensor], count: int, key: Key) -> np.ndarray:
    """[members]: the group of each."""
    if count == len(members):
        return np.arange(count)
    if count == 1:
        return np.zeros(len(members), np.int64)
    if rule == "kmeans":
        return _k_means(_embedded(products(members, members).numpy()), count, key)
    if rule == "literal":
        return _k_means(torch.stack([one.double().reshape(-1) for one in members]).numpy(), count, key)
    apart = distances(members, members).numpy()
    np.fill_diagonal(apart, 0.0)
    if rule == "linkage":
        from scipy.cluster.hierarchy import fcluster, linkage  # slow to import, and needed by few runs
        from scipy.spatial.distance import squareform

        tree = linkage(squareform(apart, checks=False), method="average")
        return np.asarray(fcluster(tree, count, criterion="maxclust"))
    return _k_medoids(apart, count, key.numpy())


def _embedded(gram: np.ndarray) -> np.ndarray:
    """Points with these inner products: k-means on them is k-means on the projectors."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > values[-1] * SMALLEST
    points = vectors[:, kept] * np.sqrt(values[kept])
    return np.asarray(points.round(DIGITS))  # so that equal clients are equal points


def _k_means(points: np.ndarray, count: int, key: Key) -> np.ndarray:
    from sklearn.cluster import KMeans  # slow to import, and needed by few runs
    from sklearn.exceptions import ConvergenceWarning

    # More threads would sum in another order. With equal points there are fewer clusters, and a warning.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        state = int(key.numpy().integers(2**32))
        return np.asarray(KMeans(count, n_init=RESTARTS, random_state=state).fit(points).labels_)


def _k_medoids(apart: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """The best of several starts, which alternate between assigning members and choosing new medoids."""
    best, lowest = np.zeros(len(apart), np.int64), np.inf
    for _ in range(RESTARTS):
        medoids = rng.choice(len(apart), count, replace=False)
        for _ in range(MOST_MOVES):
            labels = apart[:, medoids].argmin(1)
            groups = [np.flatnonzero(labels == k) for k in range(count)]
            moved = [
                group[apart[np.ix_(group, group)].sum(1).argmin()] if len(group) else old
                for group, old in zip(groups, medoids, strict=True)
            ]
            if np.array_equal(moved, medoids):
                break
            medoids = np.array(moved)
        cost = apart[:, medoids].min(1).sum()
        if cost < lowest:
            best, lowest = apart[:, medoids].argmin(1), cost
    return best


def _numbered(labels: np.ndarray) -> np.ndarray:
    """The same groups, numbered in the order of their first members."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[inverse])
