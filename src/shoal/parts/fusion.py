"""Fusion of the features of two models: one that is trained, and one that is fixed.

    single   lambda g + (1 - lambda) l            one number
    multi    the same with a lambda for each feature
    conv     A [g, l]                             a 1 x 1 convolution over both, without a bias

g are the features of the fixed model and l those of the trained one: the inputs of the last layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from shoal.core.data import Data
from shoal.core.flat import Flat, Layout
from shoal.core.task import Task
from shoal.core.types import Weights
from shoal.kernels.plan import with_fusion
from shoal.solver.outputs import features_of

Operator = Literal["single", "multi", "conv"]
FUSION = "fusion.weight"  # the name of lambda, or A
NET = "net."  # prefix of the model's own parameters


def initial_fusion(operator: Operator, width: int) -> Tensor:
    """The fusion that takes the trained model's features alone."""
    if operator == "conv":
        return torch.cat([torch.zeros(width, width), torch.eye(width)], 1)
    return torch.zeros(1 if operator == "single" else width)


def folded(params: Mapping[str, Tensor], last: str) -> Mapping[str, Tensor]:
    """The plain model that computes the same if both feature extractors are its own.

    `last` is the name of the last layer's weight.
    """
    plain, fusion = {n: value for n, value in params.items() if n != FUSION}, params[FUSION]
    if fusion.dim() == 2:
        both = fusion[:, : len(fusion)] + fusion[:, len(fusion) :]
        plain[last] = (plain[last].double() @ both.double()).to(plain[last].dtype)
    return plain


class _Fusion(nn.Module):
    """The fusion as a layer."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, given: Tensor, own: Tensor) -> Tensor:
        """[n, width]: the fused features."""
        if self.weight.dim() == 2:
            return torch.cat([given, own], 1) @ self.weight.T
        return self.weight * given + (1 - self.weight) * own


class _Fused(nn.Module):
    """A model whose last layer gets fused features. The fixed model's are appended to each sample."""

    def __init__(
        self, net: nn.Module, last: str, operator: Operator, width: int, shape: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.fusion, self.net = _Fusion(initial_fusion(operator, width)), net
        self._last, self._width, self._shape = last, width, shape

    def forward(self, x: Tensor) -> Tensor:
        """See `nn.Module`."""
        given, samples = x[:, -self._width :], x[:, : -self._width].reshape(len(x), *self._shape)

        def fuse(layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Tensor]:
            return (self.fusion(given, inputs[0]),)

        hook = self.net.get_submodule(self._last).register_forward_pre_hook(fuse)
        try:
            outputs: Tensor = self.net(samples)
        finally:
            hook.remove()
        return outputs


@lru_cache(maxsize=4)
def fused_task(task: Task, operator: Operator) -> Task:
    """The model with the fusion before its last layer, on samples with the fixed model's features."""
    assert task.last is not None
    last = task.last.removesuffix(".")
    build = partial(_fused, task.build, last, operator, task.width, task.shape)
    plan = None if operator == "conv" else task.plan  # the kernels support only lambda
    length = initial_fusion(operator, task.width).numel()
    return Task(
        build,
        task.loss,
        task.classes,
        {f"{NET}{name}": shape for name, shape in task.noise_shapes.items()},
        tuple(f"{NET}{name}" for name in task.batch_norms),
        task.device,
        None if plan is None else with_fusion(plan, length),
        frozen={f"{NET}{name}": value for name, value in task.frozen.items()},
        channels_last=frozenset(f"{NET}{name}" for name in task.channels_last),
    )


def _fused(build: Callable[[], nn.Module], *rest: Any) -> nn.Module:
    return _Fused(build(), *rest)


def with_features(task: Task, model: Weights, data: Data) -> Data:
    """The same samples and mini-batches, with the model's features appended to each sample."""
    x, y = data.all
    features = features_of(task, model, x)
    return replace(data, x=torch.cat([x.flatten(1), features], 1), y=y, rows=np.arange(data.count))


def renamed(weights: Weights) -> Weights:
    """A model and its fusion, with their names in the fused task."""
    return _with_names(weights, lambda name: name if name == FUSION else f"{NET}{name}")


def named_back(weights: Weights) -> Weights:
    """The inverse of `renamed`."""
    return _with_names(weights, lambda name: name.removeprefix(NET))


def _with_names(weights: Weights, name: Callable[[str], str]) -> Weights:
    params = weights.params
    if isinstance(params, Flat):
        params = Layout(tuple(map(name, params.layout.names)), params.layout.shapes).tree(params.vector)
    else:
        params = {name(n): value for n, value in params.items()}
    return Weights(params, {name(n): value for n, value in weights.buffers.items()})
