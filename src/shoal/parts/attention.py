"""FedAMP's attention: models mixed according to their similarity.

xi_ij = alpha A'(||w_i - w_j||^2),  A(x) = 1 - exp(-x / sigma);   u_i = sum_j xi_ij w_j

All models are near the common initial model, the origin, and are compared and mixed by their differences from
it: u_i = origin + sum_j xi_ij (w_j - origin), because the shares xi_ij have the sum 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from shoal.core.threads import cores, parallel_map
from shoal.kernels.mixing import Vectors, mix_around, products_around


def model_vectors(models: Iterable[Tensor]) -> Vectors:
    """Float32 vectors in the form that the functions below take."""
    return Vectors.of([model.numpy() for model in models])


def squared_lengths(models: Iterable[Tensor], origin: np.ndarray) -> list[float]:
    """Squared distances from the origin, bit for bit as in `squared_distances`, so equal models are at 0."""

    def square(model: Tensor) -> float:
        alone = model_vectors([model])
        return float(products_around(origin, alone, alone)[0, 0])

    return parallel_map(square, [*models])


def squared_distances(
    models: Vectors, own: Sequence[int], squares: np.ndarray, origin: np.ndarray
) -> np.ndarray:
    """[own, n] float64: from the models in the places `own` to all n, whose squared lengths are known."""
    some = models.some(own)
    pieces = parallel_map(
        lambda piece: products_around(origin, some, models.some(piece)), _pieces(len(models.addresses))
    )
    inner = np.concatenate(pieces, 1)
    distances: np.ndarray = np.maximum(squares[own, None] + squares - 2 * inner, 0.0)
    distances[np.arange(len(own)), own] = 0.0
    return distances


def attention(
    distances: np.ndarray, own: Sequence[int], sigma: float | None, alpha: float | None
) -> np.ndarray:
    """[own, n] float64: xi, from the squared distances of the models in the places `own` to all n models.

    Each row has the sum 1.
    """
    count, rows = distances.shape[1], np.arange(len(own))
    if sigma is None:
        apart = np.sort(distances[distances > 0])
        sigma = float(apart[(len(apart) - 1) // 2]) if len(apart) else 1.0
    alpha = sigma / max(count - 1, 1) if alpha is None else alpha
    xi: np.ndarray = alpha / sigma * np.exp(-distances / sigma)  # eq. 5
    xi[rows, own] = 0.0
    xi /= np.maximum(xi.sum(1, keepdims=True), 1.0)
    xi[rows, own] = 1 - xi.sum(1)
    return xi


def mixed_models(xi: np.ndarray, models: Vectors, origin: np.ndarray) -> list[Tensor]:
    """`xi` [own, n] times the models: float32 vectors."""
    mixed = [torch.empty(len(origin)) for _ in xi]
    out = model_vectors(mixed)
    parallel_map(
        lambda columns: mix_around(origin, xi, models, out, columns.start, columns.stop),
        _pieces(len(origin)),
    )
    return mixed


def _pieces(count: int) -> list[slice]:
    """One piece per thread at most; no result depends on where they are cut."""
    size = -(-count // cores())
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]
