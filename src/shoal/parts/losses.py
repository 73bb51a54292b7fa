"""The loss of a model on a client's samples."""

from __future__ import annotations

import torch
from torch import Tensor

from shoal.core.data import Data
from shoal.core.task import LOSSES, Task
from shoal.core.types import Weights
from shoal.kernels import mlp_loss
from shoal.kernels.plan import DensePlan
from shoal.parts.outputs import outputs_of
from shoal.solver.compiled_sgd import parameter_vector


def mean_loss(task: Task, weights: Weights, data: Data) -> Tensor:
    """[] float64: the mean loss over all of a client's samples."""
    if isinstance(task.plan, DensePlan) and data.count:
        params = parameter_vector(weights.params, task).numpy()
        x, y = data.x.reshape(len(data.x), -1).numpy(), data.y.numpy()
        return torch.tensor(mlp_loss.mean_loss(task.plan, params, x, y, data.rows), dtype=torch.float64)
    rows = torch.from_numpy(data.rows)
    found = LOSSES[task.loss].each(outputs_of(task, weights, data.x, rows), data.y[rows])
    return found.double().sum().cpu() / max(data.count, 1)
