"""Models mixed by how similar they are, as FedAMP has it.

xi_ij = alpha A'(||w_i - w_j||^2),  A(x) = 1 - exp(-x / sigma);   u_i = sum_j xi_ij w_j

All models are near the one that everybody began with, the origin, and are compared and mixed by their
differences from it: u_i = origin + sum_j xi_ij (w_j - origin), because the shares xi_ij have the sum 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from shoal.core.threads import cores, side_by_side
from shoal.kernels.mixing import Vectors, mix_around, products_around


def model_vectors(models: Iterable[Tensor]) -> Vectors:
    """Float32 vectors as the functions below take them."""
    return Vectors.of([model.numpy() for model in models])


def squared_lengths(models: Iterable[Tensor], origin: np.ndarray) -> list[float]:
    """From the origin, to the bits of `squared_distances`: equal models are at a distance of exactly 0."""

    def square(model: Tensor) -> float:
        alone = model_vectors([model])
        return float(products_around(origin, alone, alone)[0, 0])

    return side_by_side(square, [*models])


def squared_distances(
    models: Vectors, own: Sequence[int], squares: np.ndarray, origin: np.ndarray
) -> np.ndarray:
    """[own, n] float64: those of the models in the places `own` to all n, whose squared lengths are known."""
    some = models.some(own)
    pieces = side_by_side(
        lambda piece: products_around(origin, some, models.some(piece)), _pieces(len(models.addresses))
    )
    inner = np.concatenate(pieces, 1)
    distances: np.ndarray = np.maximum(squares[own, None] + squares - 2 * inner, 0.0)
    distances[np.arange(len(own)), own] = 0.0
    return distances


def attention(
    distances: np.ndarray, own: Sequence[int], sigma: float | None, alpha: float | None
) -> np.ndarray:
    """[own, n] float64: xi by the squared distances of the models in the places `own` to all n models.

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
    side_by_side(
        lambda columns: mix_around(origin, xi, models, out, columns.start, columns.stop),
        _pieces(len(origin)),
    )
    return mixed


def _pieces(count: int) -> list[slice]:
    """As many pieces as threads will take: no number depends on where they are cut."""
    size = -(-count // cores())
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]
