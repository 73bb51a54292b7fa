"""Samples that can be read off without any optimisation.

For a dense layer z = W x + b on the input itself, dL/dW = d x^T and dL/db = d, so that every row of the
former, divided by the corresponding entry of the latter, is x. All rows together give the least-squares
estimate below. With a single sample, it also holds for updates of several steps: they are sums of d x^T, and
of d.

The signature of a client that holds a single sample is that sample, up to its norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from shoal.core.key import Key
from shoal.core.task import Task


def dense_input(task: Task, shape: tuple[int, ...]) -> str | None:
    """The name prefix of the linear layer that sees the sample itself; None if there is none."""
    key = Key.from_seed(0)
    module, x = task.module(task.init(key)), key.fold("probe").uniform((2, *shape))
    found: list[str] = []

    def note(name: str) -> Any:
        def look(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if torch.equal(inputs[0].flatten(1), x.flatten(1)):
                found.append(f"{name}." if name else "")

        return look

    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear) and layer.bias is not None:
            layer.register_forward_pre_hook(note(name))
    module(x)
    return found[0] if found else None


def readable(task: Task, shape: tuple[int, ...], travelled: Mapping[str, Tensor]) -> str | None:
    """The prefix of a layer whose gradients were uploaded and reveal the sample; None if there is none."""
    prefix = dense_input(task, shape)
    whole = prefix is not None and {f"{prefix}weight", f"{prefix}bias"} <= travelled.keys()
    return prefix if whole else None


def inverted(weight: Tensor, bias: Tensor) -> Tensor:
    """[features]: the sample with these gradients [units, features] and [units]."""
    return weight.double().T @ bias.double() / bias.double().square().sum()


def from_signature(signature: Tensor, high: float) -> Tensor:
    """[features]: the first vector of a signature, scaled to the largest value of a sample."""
    first = signature[:, 0].double()
    return high * first / first.abs().max()
