"""Quantiles of a few numbers that count differently."""

from __future__ import annotations

import numpy as np
from numba import float64

from shoal.kernels.jit import given, inner, kernel


@inner
def _quantile(values: np.ndarray, counts: np.ndarray, level: float) -> float:
    """See `quantile`."""
    kept = np.flatnonzero(counts > 0)
    if not kept.size:
        return 0.0
    here, often = values[kept], counts[kept]
    order = here.argsort(kind="mergesort")
    ordered, held = here[order], often[order]
    ends = held.cumsum()
    places = (ends - held / 2) / ends[-1]
    after = min(int(np.searchsorted(places, level)), kept.size - 1)
    before = max(after - 1, 0)
    gap = places[after] - places[before]
    share = min(max((level - places[before]) / gap, 0.0), 1.0) if gap > 0 else 1.0
    return ordered[before] + share * (ordered[after] - ordered[before])  # type: ignore[no-any-return]


@kernel(float64(given(float64, 1), given(float64, 1), float64))
def quantile(values: np.ndarray, counts: np.ndarray, level: float) -> float:
    """Of values that count so often; between two of them a straight line; 0 if there are none."""
    if values.size != counts.size:
        raise ValueError("every value needs a count")
    return _quantile(values, counts, level)


@kernel(float64[::1](given(float64, 2), given(float64, 2), float64))
def quantiles(values: np.ndarray, counts: np.ndarray, level: float) -> np.ndarray:
    """[n]: of each row of values [n, m] that count so often [n, m]."""
    if values.shape != counts.shape:
        raise ValueError("every value needs a count")
    found = np.empty(len(values))
    for i in range(len(values)):
        found[i] = _quantile(values[i], counts[i], level)
    return found
