"""Models mixed by how similar they are, as FedAMP has it.

xi_ij = alpha A'(||w_i - w_j||^2),  A(x) = 1 - exp(-x / sigma);   u_i = sum_j xi_ij w_j
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from shoal.core.flat import in_one_vector
from shoal.core.threads import cores, side_by_side
from shoal.kernels.products import mixtures, products

Pieces = TypeVar("Pieces", list[np.ndarray], range)


def model_vectors(models: Iterable[Mapping[str, Tensor]]) -> list[np.ndarray]:
    """Each model's parameters as one float32 vector."""
    return [in_one_vector(model).vector.detach().cpu().contiguous().numpy() for model in models]


def squared_lengths(models: Sequence[Mapping[str, Tensor]]) -> list[float]:
    """The squared lengths, to the bits of `products`: equal models are at a distance of exactly 0."""
    return [float(products([vector])[0, 0]) for vector in model_vectors(models)]


def squared_distances(models: list[np.ndarray], own: Sequence[int], squares: np.ndarray) -> np.ndarray:
    """[own, n] float64: those of the models in the places `own` to all n, whose squared lengths are known."""
    some = [models[place] for place in own]
    pieces = side_by_side(lambda piece: products(some, piece), _pieces(models))
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


def mixed_models(xi: np.ndarray, models: Sequence[np.ndarray]) -> Tensor:
    """[own, parameters] float32: `xi` times the models."""
    width = len(models[0])
    mixed = np.empty((len(xi), width), np.float32)

    def fill(columns: range) -> None:
        first, last = columns[0], columns[-1] + 1
        mixed[:, first:last] = mixtures(xi, [model[first:last] for model in models])

    side_by_side(fill, _pieces(range(width)))
    return torch.from_numpy(mixed)


def _pieces(items: Pieces) -> list[Pieces]:
    """As many pieces as threads will take: no number depends on where they are cut."""
    size = -(-len(items) // cores())
    return [items[first : first + size] for first in range(0, len(items), size)]
