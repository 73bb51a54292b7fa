"""A model's outputs and features, without training it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from shoal.core.task import Task
from shoal.core.types import Weights
from shoal.kernels.plan import ConvPlan, DensePlan
from shoal.solver.compiled_sgd import LARGEST, parameter_vector

CHUNK = 1000  # samples per forward pass
HIDDEN = 3  # sizes of dense layers: an input, a hidden layer and the outputs


def outputs_of(task: Task, weights: Weights, x: Tensor, rows: Tensor | None = None) -> Tensor:
    """[n, heads]: the model's outputs for all samples, or for some rows of them.

    A convolutional model that the kernels train is also evaluated by them, which is faster for small models.
    """
    rows = torch.arange(len(x)) if rows is None else rows
    if isinstance(task.plan, ConvPlan) and task.plan.params <= LARGEST[ConvPlan]:
        from shoal.kernels.conv_outputs import conv_outputs  # compiled only where it is needed

        params = parameter_vector(weights.params, task)
        if params.dtype == x.dtype == torch.float32:
            found = conv_outputs(task.plan, params.numpy(), x.reshape(len(x), -1).numpy(), rows.numpy())
            return torch.from_numpy(found)
    with torch.no_grad():
        return torch.cat([task.forward(weights, x[piece])[0] for piece in torch.split(rows, CHUNK)])


def features_of(task: Task, weights: Weights, x: Tensor) -> Tensor:
    """[n, width]: the input of the last layer, without dropout; see `outputs_of` for convolutional models."""
    plan = task.plan
    if isinstance(plan, ConvPlan) and plan.params <= LARGEST[ConvPlan] and len(plan.dense.sizes) >= HIDDEN:
        from shoal.kernels.conv_outputs import conv_outputs

        below = plan._replace(dense=DensePlan(plan.dense.sizes[:-1], plan.loss))  # ends before its last ReLU
        params = parameter_vector(weights.params, task)[: below.params].contiguous()
        if params.dtype == x.dtype == torch.float32:
            found = conv_outputs(below, params.numpy(), x.reshape(len(x), -1).numpy(), np.arange(len(x)))
            return torch.from_numpy(found).clamp_(min=0)
    with torch.no_grad():
        return task.features(weights, x)
