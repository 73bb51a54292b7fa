"""The losses of models on clients' samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from shoal.core.data import Data
from shoal.core.task import LOSSES, Task
from shoal.core.types import Weights
from shoal.kernels import mlp_loss
from shoal.kernels.plan import DensePlan
from shoal.solver.compiled_sgd import in_threads, parameter_vector
from shoal.solver.outputs import outputs_of


def mean_losses(task: Task, weights: Sequence[Weights], data: Sequence[Data], threads: int) -> Tensor:
    """[clients] float64: the mean loss of each client's model over its samples, of several at once."""
    found = torch.empty(len(data), dtype=torch.float64)

    def some(first: int, last: int) -> None:
        for i in range(first, last):
            found[i] = mean_loss(task, weights[i], data[i])

    work = np.array([own.count for own in data]) * sum(task.layout.sizes)
    in_threads(work, 1 if task.plan is None else threads, some, len(data))  # torch has one resident model
    return found


def mean_loss(task: Task, weights: Weights, data: Data) -> Tensor:
    """[] float64: the mean loss over all of a client's samples."""
    if isinstance(task.plan, DensePlan) and data.count:
        params = parameter_vector(weights.params, task).numpy()
        x, y = data.x.reshape(len(data.x), -1).numpy(), data.y.numpy()
        return torch.tensor(mlp_loss.mean_loss(task.plan, params, x, y, data.rows), dtype=torch.float64)
    rows = torch.from_numpy(data.rows)
    found = LOSSES[task.loss].each(outputs_of(task, weights, data.x, rows), data.y[rows])
    return found.double().sum().cpu() / max(data.count, 1)
