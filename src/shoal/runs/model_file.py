"""The models of a run, as named tensors and as a hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from shoal.core.types import Weights


def named_weights(models: Mapping[str, Weights]) -> dict[str, Tensor]:
    """All tensors of the server's models; those of the global model keep their plain names."""
    return {
        f"{model}/{name}" if model else name: value
        for model, weights in models.items()
        for part in weights
        for name, value in part.items()
    }


def weights_sha256(weights: Mapping[str, Tensor]) -> str:
    """A hash over (name, dtype, shape, little-endian bytes) of each tensor, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        value = weights[name].detach().cpu().contiguous()
        digest.update(f"{name}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
