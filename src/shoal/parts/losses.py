"""What a client's own samples say of a model."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from shoal.core.data import Data
from shoal.core.task import Task
from shoal.core.tree import row
from shoal.core.types import Weights

CHUNK = 1000  # samples that go through the model at once


def mean_loss(task: Task, weights: Weights, data: Data) -> Tensor:
    """[] or [clients] float64: the mean loss over all of a client's samples; weights may differ by client."""
    if not data.stacked:
        return _of_one(task, weights, data, data.rows)
    own = next(iter(weights.params.values())).dim() > len(next(iter(task.shapes.values())))
    held = np.split(data.rows, np.cumsum(data.counts)[:-1])
    return torch.stack(
        [_of_one(task, row(weights, i) if own else weights, data, rows) for i, rows in enumerate(held)]
    )


def _of_one(task: Task, weights: Weights, data: Data, rows: np.ndarray) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        for piece in torch.split(torch.from_numpy(rows), CHUNK):
            total += task.losses(weights, data.x[piece], data.y[piece]).double().sum().cpu()
    return total / max(len(rows), 1)
