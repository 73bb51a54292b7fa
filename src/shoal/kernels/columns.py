"""Several selections of columns from a large matrix, in one pass."""

from __future__ import annotations

import numpy as np
from numba import float32, int64, types

from shoal.kernels.jit import given, kernel

_BLOCK = 4096  # columns of a row that stay in the cache while all selections read them


@kernel(types.void(given(float32, 1), given(int64, 2), float32[:, ::1]))
def take(row: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    """out[t, p] = row[places[t, p]], for several selections of places, each ascending.

    Taking one selection after another would read most of the row from memory each time.
    """
    tries, count = places.shape
    if out.shape[0] != tries or out.shape[1] != count:
        raise ValueError("there must be as much room as there are places")
    ahead = np.zeros(tries, np.int64)
    for first in range(0, row.size, _BLOCK):
        last = min(first + _BLOCK, row.size)
        for t in range(tries):
            chosen, taken, p = places[t], out[t], ahead[t]
            while p < count and first <= chosen[p] < last:
                taken[p] = row[chosen[p]]
                p += 1
            ahead[t] = p
    for t in range(tries):
        if ahead[t] != count:
            raise ValueError("places must be ascending, and lie in the row")
