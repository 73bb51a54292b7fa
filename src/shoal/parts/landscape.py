"""A client's loss as a function of the parameters, evaluated at many points at once, in float64.

Points are [dimension, problems, particles], losses [problems, particles], summed over the samples. A linear
regression is one problem; each head of a one-versus-all model is a separate problem, whose vector is the
head's weights followed by its bias; the parameters of any other model are one vector.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shoal.core.data import Data
from shoal.core.task import Task
from shoal.core.types import Weights
from shoal.kernels.logistic import entropies, grouped
from shoal.kernels.plan import DensePlan
from shoal.kernels.swarm import squares

LossForm = Literal["stable", "paper"]
Kind = Literal["quadratic", "logistic", "sampled"]

_SAMPLES = 512  # samples per forward pass
_ROOM = 2**22  # float64 numbers for the parameters and activations of models that are evaluated together
_WIDTH = 8  # assumed ratio of activations to inputs


class Landscape(ABC):
    """The loss function of one client."""

    @abstractmethod
    def losses(self, points: Tensor) -> Tensor:
        """[problems, particles] float64: losses summed over the client's samples; never warns."""


def kind_of(task: Task) -> Kind:
    """The form of the loss that the task allows."""
    linear = isinstance(task.plan, DensePlan) and len(task.plan.sizes) == 2
    if linear and task.loss == "squared_error" and _heads(task) == 1:
        return "quadratic"
    return "logistic" if linear and task.loss == "one_versus_all" else "sampled"


def problems_of(task: Task) -> int:
    """The number of independent problems that the model's parameters consist of."""
    return _heads(task) if kind_of(task) == "logistic" else 1


def landscape_of(task: Task, data: Data, loss: LossForm) -> Landscape:
    """The client's loss function; everything that depends only on its samples is computed here, once."""
    kind = kind_of(task)
    x, y = data.all
    if kind == "quadratic":
        return Quadratic(triangle(x, y))
    if kind == "logistic":
        return Logistic(x.reshape(len(x), -1).double(), y, loss == "paper")
    return Sampled(task, x.double(), y)


def triangle(x: Tensor, y: Tensor) -> np.ndarray:
    """[d + 2, d + 2] float64: the R of a QR decomposition of [x 1 y], padded with zeros."""
    flat = x.reshape(len(x), -1).double()
    columns = torch.cat([flat, torch.ones_like(flat[:, :1]), y[:, None].double()], 1)
    factor = torch.linalg.qr(columns, mode="r").R
    whole = torch.zeros(factor.shape[1], factor.shape[1], dtype=torch.float64)
    whole[: len(factor)] = factor.triu()
    return whole.numpy()


class Quadratic(Landscape):
    """Squared error of a linear regression: |[x 1 y] (theta; -1)|^2 = |R (theta; -1)|^2.

    Unlike x'x and x'y, the triangular factor R keeps full precision even for a very close fit.
    """

    def __init__(self, factor: np.ndarray) -> None:
        self.factor = factor

    def losses(self, points: Tensor) -> Tensor:
        """See `Landscape`."""
        return torch.from_numpy(squares(self.factor, points[:, 0].contiguous().numpy()))[None]


class Logistic(Landscape):
    """Cross entropy of linear one-versus-all models."""

    def __init__(self, x: Tensor, labels: Tensor, shifted: bool) -> None:
        self._samples, self._shifted = grouped(x.numpy(), labels.numpy()), shifted

    def losses(self, points: Tensor) -> Tensor:
        """See `Landscape`."""
        return torch.from_numpy(entropies(self._samples, points.numpy(), self._shifted))


class Sampled(Landscape):
    """The loss of any model: the task's losses, summed over samples and heads."""

    def __init__(self, task: Task, x: Tensor, y: Tensor) -> None:
        self._task, self._x, self._y = task, x, y

    def losses(self, points: Tensor) -> Tensor:
        """See `Landscape`."""
        vectors = points[:, 0].T.contiguous().to(self._x.device)
        each = vectors.shape[1] + _WIDTH * self._x[:_SAMPLES].numel()
        summed = torch.func.vmap(self._summed, (0, None, None), chunk_size=max(1, _ROOM // each))
        total = torch.zeros(len(vectors), dtype=torch.float64)
        with torch.no_grad():
            for x, y in zip(torch.split(self._x, _SAMPLES), torch.split(self._y, _SAMPLES), strict=True):
                total += summed(vectors, x, y).cpu()
        return total[None]

    def _summed(self, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
        params = unpacked(vector[None], self._task.shapes)
        return self._task.losses(Weights(params, {}), x, y).sum()


def unpacked(vectors: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The parameters in vectors [problems, dimension]: each problem holds its slice of every parameter."""
    sizes = [math.prod(shape) // len(vectors) for shape in shapes.values()]
    pieces = torch.split(vectors, sizes, 1)
    return {name: piece.reshape(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}


def _heads(task: Task) -> int:
    assert isinstance(task.plan, DensePlan)
    return task.plan.sizes[-1]
