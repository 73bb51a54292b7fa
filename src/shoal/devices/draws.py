"""Random numbers per client, independent of which other clients are drawn at the same time."""

from __future__ import annotations

import numpy as np

from shoal.core.key import Key

_UNIT = 2.0**-53


def uniforms(key: Key, clients: np.ndarray, purpose: str) -> np.ndarray:
    """[clients, 2] float64, uniform in (0, 1)."""
    words = key.fold_many("client", clients, purpose)
    return np.asarray(((words >> np.uint64(11)).astype(np.float64) + 0.5) * _UNIT)


def normals(key: Key, clients: np.ndarray, purpose: str) -> np.ndarray:
    """[clients] float64 from the standard normal distribution (Box-Muller)."""
    first, second = uniforms(key, clients, purpose).T
    return np.asarray(np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second))
