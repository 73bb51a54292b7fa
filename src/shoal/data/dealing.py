"""How many samples of each class go to each client: the arithmetic behind the partitions.

A dealing is a matrix of counts, [clients, classes]. Which samples of a class a client gets is settled
only afterwards, at random, so a rule may move samples between clients by changing two numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from shoal.core.errors import SpecError


def cut(total: int, shares: np.ndarray) -> np.ndarray:
    """`total` in whole numbers proportional to `shares`, which need not sum to one."""
    edges = np.cumsum(shares)
    # divided by its own last entry, the sum ends in exactly 1 and stays there over trailing zero
    # shares: no client without a share gets the remainder
    edges = np.floor(edges / edges[-1] * total).astype(np.int64)
    return np.diff(edges, prepend=0)


def even(total: int, parts: int) -> np.ndarray:
    """`total` in `parts` whole numbers that differ by one at most, the larger ones first."""
    return total // parts + (np.arange(parts) < total % parts)


def skewed(per_class: np.ndarray, clients: int, beta: float, rng: Generator) -> np.ndarray:
    """[clients, classes]: each class dealt by Dirichlet(beta) among the clients that are not yet full.

    Classes come in a random order, for late ones find fewer clients that are not full; and so do the clients
    of each class, for what rounding leaves falls to the last.
    """
    counts = np.zeros((clients, len(per_class)), np.int64)
    held = np.zeros(clients, np.int64)
    full = per_class.sum() / clients
    for label in rng.permutation(len(per_class)):
        shares = np.where(held < full, rng.dirichlet(np.full(clients, beta)), 0.0)
        if shares.sum() == 0:  # every share above 0 fell to a client that is full
            shares = (held == held.min()).astype(float)
        order = rng.permutation(clients)
        counts[order, label] = cut(int(per_class[label]), shares[order])
        held += counts[:, label]
    return counts


def top_up(counts: np.ndarray, min_size: int) -> np.ndarray:
    """Bring each client to `min_size`: the largest client gives of its most frequent class.

    In the order of ids. No giver falls below `min_size` itself: as long as some client has less, the
    largest has more, for `counts` holds `min_size` samples a client at least.
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
    """[clients, classes]: each class in even parts among its `holders` ([clients, classes] bool)."""
    counts = np.zeros(holders.shape, np.int64)
    for label, total in enumerate(per_class):
        who = np.flatnonzero(holders[:, label])
        if len(who) > total:
            raise SpecError(
                f"class {label} has {total} training samples for the {len(who)} clients that are to hold it; "
                f"use fewer clients, or fewer classes a client"
            )
        if len(who):
            counts[who, label] = even(int(total), len(who))
    return counts


def owners(labels: np.ndarray, counts: np.ndarray, rng: Generator) -> np.ndarray:
    """[n] int64: a client for each sample, at random such that `counts` holds."""
    owner = np.empty(len(labels), np.int64)
    clients = np.arange(len(counts))
    for label in range(counts.shape[1]):
        rows = np.flatnonzero(labels == label)
        owner[rng.permutation(rows)] = np.repeat(clients, counts[:, label])
    return owner
