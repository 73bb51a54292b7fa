"""The losses of models on clients' samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from shoal.core.data import Data
from shoal.core.task import LOSSES, Task
from shoal.core.threads import parallel_map, parallel_ranges
from shoal.core.types import Weights
from shoal.kernels import mlp_loss
from shoal.kernels.plan import DensePlan
from shoal.solver.compiled_sgd import parameter_vector
from shoal.solver.outputs import outputs_of


def mean_losses(task: Task, weights: Sequence[Weights], data: Sequence[Data], threads: int) -> Tensor:
    """[clients] float64: the mean loss of each client's model over its samples, several clients at once."""
    alike = all(one is weights[0] for one in weights) and all(own.x is data[0].x for own in data)
    if isinstance(task.plan, DensePlan) and alike and all(own.count for own in data):
        return _compiled(task, weights[0], data, threads)
    found = torch.empty(len(data), dtype=torch.float64)

    def some(first: int, last: int) -> None:
        for i in range(first, last):
            found[i] = mean_loss(task, weights[i], data[i])

    work = np.array([own.count for own in data]) * sum(task.layout.sizes)
    parallel_ranges(
        work, 1 if task.plan is None else threads, some, len(data)
    )  # torch has one resident model
    return found


def mean_loss(task: Task, weights: Weights, data: Data) -> Tensor:
    """[] float64: the mean loss over all of a client's samples."""
    if isinstance(task.plan, DensePlan) and data.count:
        return _compiled(task, weights, [data])[0]
    rows = torch.from_numpy(data.rows)
    found = LOSSES[task.loss].each(outputs_of(task, weights, data.x, rows), data.y[rows])
    return found.double().sum().cpu() / max(data.count, 1)


def _compiled(task: Task, weights: Weights, data: Sequence[Data], threads: int = 1) -> Tensor:
    """[clients]: the mean losses of one model, for clients whose samples are in the same arrays."""
    assert isinstance(task.plan, DensePlan)
    params, x, y = parameter_vector(weights.params, task).numpy(), data[0].x, data[0].y
    rows = [own.rows for own in data]
    flat = x.reshape(len(x), -1).numpy()
    job = mlp_loss.loss_job(task.plan, params, flat, y.numpy(), rows)
    parallel_map(lambda _: job.work(), range(min(threads, len(rows))), threads)
    return torch.from_numpy(job.found)
