"""Models mixed by how similar they are, as FedAMP has it.

xi_ij = alpha A'(||w_i - w_j||^2),  A(x) = 1 - exp(-x / sigma);   u_i = sum_j xi_ij w_j
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from shoal.core.flat import in_one_vector
from shoal.kernels.products import mixtures, products


def model_vectors(models: Iterable[Mapping[str, Tensor]]) -> list[np.ndarray]:
    """Each model's parameters as one float32 vector."""
    return [in_one_vector(model).vector.detach().cpu().contiguous().numpy() for model in models]


def squared_lengths(models: Sequence[Mapping[str, Tensor]]) -> list[float]:
    """The squared lengths, to the bits of `products`: equal models are at a distance of exactly 0."""
    return [float(products([vector])[0, 0]) for vector in model_vectors(models)]


def squared_distances(models: Sequence[np.ndarray], own: Sequence[int], squares: np.ndarray) -> np.ndarray:
    """[own, n] float64: those of the models in the places `own` to all n, whose squared lengths are known."""
    inner = products([models[place] for place in own], models)
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
    return torch.from_numpy(mixtures(xi, models))
