"""The last update of every client, and the distances between them.

Clients that never replied have a zero update, and layers that a client did not send are zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.flat import Flat, flat
from shoal.core.population import Population
from shoal.core.threads import cores, parallel_map
from shoal.kernels.products import products

Distance = Literal["cosine", "l2", "l1"]
Params = Mapping[str, Tensor]
PIECE = 2**16  # parameters processed at once for L1 distances


class Compared(NamedTuple):
    """The compared updates, and the result of `_pairs` for them; the first one is a zero update."""

    clients: tuple[int, ...]
    pairs: Tensor  # [1 + clients, 1 + clients] float64


class LastUpdates(NamedTuple):
    """The last updates of the clients that replied."""

    updates: Mapping[int, Params]  # float32, on the CPU
    compared: Compared = Compared((), torch.zeros(1, 1, dtype=torch.float64))
    changed: tuple[int, ...] = ()  # clients with new updates since the last comparison

    def with_update(self, client: int, update: Params) -> LastUpdates:
        """Add a copy of an update; a view would keep the whole reply in memory."""
        changed = (*(other for other in self.changed if other != client), client)
        return self._replace(updates={**self.updates, client: _copy(update)}, changed=changed)

    def all_compared(self, distance: Distance) -> LastUpdates:
        """Compare all updates: only new ones are compared with the others."""
        if not self.changed:
            return self
        before, new = self.compared, set(self.changed)
        clients = (*(client for client in before.clients if client not in new), *self.changed)
        updates = aligned([{}, *(self.updates[client] for client in clients)])
        old = len(updates) - len(new)
        place = {client: row for row, client in enumerate(before.clients, 1)}
        rows = [0, *(place[client] for client in clients[: old - 1])]
        pairs = np.empty((len(updates), len(updates)))
        pairs[:old, :old] = before.pairs.numpy()[np.ix_(rows, rows)]
        pairs[old:] = _pairs(updates[old:], updates, distance)
        pairs[:old, old:] = pairs[old:, :old].T
        return self._replace(compared=Compared(clients, torch.from_numpy(pairs)), changed=())

    def distances(self, available: Population, distance: Distance) -> np.ndarray:
        """[available, available]. Clients that never replied share one row, that of the zero update."""
        known = self.all_compared(distance).compared
        place = {client: row for row, client in enumerate(known.clients, 1)}
        rows = [place.get(client, 0) for client in available]
        return _apart(known.pairs.numpy(), distance)[np.ix_(rows, rows)]


def _copy(update: Params) -> Params:
    if isinstance(update, Flat):
        return update.layout.tree(update.vector.detach().to("cpu", torch.float32, copy=True))
    return flat({name: value.detach().to("cpu", torch.float32, copy=True) for name, value in update.items()})


def aligned(updates: Sequence[Params]) -> list[Tensor]:
    """[parameters] each: all layers that occur, in the same order, with zeros for missing ones."""
    shapes = {name: value.shape for update in updates for name, value in update.items()}
    return [_vector(update, shapes) for update in updates]


def _vector(update: Params, shapes: Mapping[str, torch.Size]) -> Tensor:
    if isinstance(update, Flat) and update.layout.names == tuple(shapes):
        return update.vector
    parts = [update[name] if name in update else torch.zeros(shape) for name, shape in shapes.items()]
    return torch.cat([part.reshape(-1) for part in parts]) if parts else torch.zeros(0)


def distances_between(updates: Sequence[Tensor], distance: Distance) -> np.ndarray:
    """[n, n] float64: arccos of the cosine, squared L2 or L1 distances of flat updates."""
    return _apart(_pairs(updates, updates, distance), distance)


def _pairs(some: Sequence[Tensor], others: Sequence[Tensor], distance: Distance) -> np.ndarray:
    """[some, others] float64: L1 distances of flat updates, or inner products for the other distances.

    The value of a pair does not depend on which other pairs are compared at the same time.
    """
    if distance != "l1":
        rows, columns = ([one.numpy() for one in group] for group in (some, others))
        size = -(-len(columns) // cores())
        pieces = [columns[first : first + size] for first in range(0, len(columns), size)]
        return np.concatenate(parallel_map(lambda piece: products(rows, piece), pieces), 1)
    total = torch.zeros(len(some), len(others), dtype=torch.float64)
    for first in range(0, len(some[0]), PIECE):
        here, there = (
            torch.stack([one[first : first + PIECE] for one in group]).double() for group in (some, others)
        )
        total += torch.cdist(here, there, p=1)
    return total.numpy()


def _apart(found: np.ndarray, distance: Distance) -> np.ndarray:
    """[n, n] float64: the distances, from the result of `_pairs` for all updates."""
    if distance == "l1":
        return found
    squares = np.diag(found)
    if distance == "l2":
        apart: np.ndarray = np.maximum(squares[:, None] + squares - 2 * found, 0)
    else:
        norms = np.sqrt(np.outer(squares, squares))
        cosines = np.divide(found, norms, out=np.ones_like(found), where=norms > 0)
        apart = np.arccos(np.clip(cosines, -1, 1))
    np.fill_diagonal(apart, 0)  # remove rounding errors
    return apart
