"""How many samples of each class each client gets: the arithmetic of the partitions.

The functions work on a matrix of counts, [clients, classes]. Which samples of a class a client gets is drawn
afterwards, so moving samples between clients only changes two numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from shoal.core.errors import SpecError


def cut(total: int, shares: np.ndarray) -> np.ndarray:
    """Divide `total` into whole numbers proportional to `shares`, which need not sum to one."""
    edges = np.cumsum(shares)
    # divided by its last entry, the cumulative sum ends at exactly 1 even if the last shares are 0, so that
    # no client without a share gets the remainder
    edges = np.floor(edges / edges[-1] * total).astype(np.int64)
    return np.diff(edges, prepend=0)


def split_evenly(total: int, parts: int) -> np.ndarray:
    """Divide `total` into `parts` whole numbers that differ by at most one, larger ones first."""
    return total // parts + (np.arange(parts) < total % parts)


def skewed(per_class: np.ndarray, clients: int, beta: float, rng: Generator) -> np.ndarray:
    """[clients, classes]: each class is divided by a Dirichlet(beta) draw among the clients with room.

    Classes are processed in random order, because later ones find fewer clients with room. The clients of
    each class are in random order too, because the last one gets the rounding remainder.
    """
    counts = np.zeros((clients, len(per_class)), np.int64)
    held = np.zeros(clients, np.int64)
    full = per_class.sum() / clients
    for label in rng.permutation(len(per_class)):
        shares = np.where(held < full, rng.dirichlet(np.full(clients, beta)), 0.0)
        if shares.sum() == 0:  # all positive shares belong to clients that are full
            shares = (held == held.min()).astype(float)
        order = rng.permutation(clients)
        counts[order, label] = cut(int(per_class[label]), shares[order])
        held += counts[:, label]
    return counts


def top_up(counts: np.ndarray, min_size: int) -> np.ndarray:
    """Raise each client to `min_size` samples, taken from the largest client's most frequent class.

    Clients are processed by id. No client is reduced below `min_size`: as long as one has less, the largest
    has more, because `counts` holds at least `min_size` samples per client.
    """
    counts = counts.copy()
    held = counts.sum(1)
    for client in np.flatnonzero(held < min_size):
        while held[client] < min_size:
            giver = held.argmax()
            label = counts[giver].argmax()
            moved = min(min_size - held[client], counts[giver, label], held[giver] - min_size)
            counts[giver, label] -= moved
            counts[client, label] += moved
            held[giver] -= moved
            held[client] += moved
    return counts


def spread(per_class: np.ndarray, holders: np.ndarray) -> np.ndarray:
    """[clients, classes]: each class divided evenly among its `holders` ([clients, classes] bool)."""
    counts = np.zeros(holders.shape, np.int64)
    for label, total in enumerate(per_class):
        who = np.flatnonzero(holders[:, label])
        if len(who) > total:
            raise SpecError(
                f"class {label} has {total} training samples for the {len(who)} clients that should hold it; "
                f"use fewer clients, or fewer classes per client"
            )
        if len(who):
            counts[who, label] = split_evenly(int(total), len(who))
    return counts


def assign_classes(clients: int, total: int, classes: int, rng: Generator) -> np.ndarray:
    """[clients, total] bool: each client takes the `classes` classes with the fewest holders.

    Ties are broken at random. Clients choose in random order, because the last ones take classes with one
    more holder than others.
    """
    ties = rng.random((clients, total))
    holders = np.zeros((clients, total), bool)
    taken = np.zeros(total, np.int64)
    for client in rng.permutation(clients):
        chosen = np.argsort(taken + ties[client])[:classes]
        holders[client, chosen] = True
        taken[chosen] += 1
    return holders


def owners(labels: np.ndarray, counts: np.ndarray, rng: Generator) -> np.ndarray:
    """[n] int64: a random client for each sample, such that clients get `counts` samples of each class."""
    owner = np.empty(len(labels), np.int64)
    clients = np.arange(len(counts))
    for label in range(counts.shape[1]):
        rows = np.flatnonzero(labels == label)
        owner[rng.permutation(rows)] = np.repeat(clients, counts[:, label])
    return owner
