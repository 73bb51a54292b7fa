"""Some columns of a large matrix, taken several times."""

from __future__ import annotations

import numpy as np
from numba import float32, int64, types

from shoal.kernels.jit import given, kernel

_BLOCK = 4096  # columns of a row that stay in the cache while all choices take theirs


@kernel(types.void(given(float32, 1), given(int64, 2), float32[:, ::1]))
def _take(row: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    """See `take`."""
    count = places.shape[1]
    ahead = np.zeros(len(places), np.int64)
    for first in range(0, row.size, _BLOCK):
        last = first + _BLOCK
        for t in range(len(places)):
            chosen, taken, p = places[t], out[t], ahead[t]
            while p < count and chosen[p] < last:
                taken[p] = row[chosen[p]]
                p += 1
            ahead[t] = p


def take(row: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    """out[t, p] = row[places[t, p]], for several choices of places, each ascending.

    To take one choice after another would read most of the row from memory each time.
    """
    if out.shape != places.shape:
        raise ValueError(f"{places.shape} places do not fit into {out.shape}")
    if places.size and not (places[:, 0].min() >= 0 and places[:, -1].max() < row.size):
        raise ValueError(f"places {places.min()} to {places.max()} of {row.size} numbers")
    if (places[:, 1:] < places[:, :-1]).any():
        raise ValueError("places must be ascending")
    _take(row, places, out)
