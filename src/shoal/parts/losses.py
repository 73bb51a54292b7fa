"""The loss of a model on a client's samples."""

from __future__ import annotations

import torch
from torch import Tensor

from shoal.core.data import Data
from shoal.core.task import Task
from shoal.core.types import Weights
from shoal.kernels import mlp_loss
from shoal.solver.compiled_sgd import parameter_vector

CHUNK = 1000  # samples per forward pass


def mean_loss(task: Task, weights: Weights, data: Data) -> Tensor:
    """[] float64: the mean loss over all of a client's samples."""
    if task.dense is not None and data.count:
        params = parameter_vector(weights.params, task).numpy()
        x, y = data.x.reshape(len(data.x), -1).numpy(), data.y.numpy()
        return torch.tensor(mlp_loss.mean_loss(task.dense, params, x, y, data.rows), dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        for piece in torch.split(torch.from_numpy(data.rows), CHUNK):
            total += task.losses(weights, data.x[piece], data.y[piece]).double().sum().cpu()
    return total / max(data.count, 1)
