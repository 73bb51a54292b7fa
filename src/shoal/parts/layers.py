"""The choice of the layers that are sent, and models assembled from layers of several origins.

A layer is a parameter tensor; the buffers of a module stay with its parameters.
"""

from __future__ import annotations

import fnmatch
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.core.errors import SpecError
from shoal.core.flat import Flat, flat
from shoal.core.gate import Some
from shoal.core.task import Task
from shoal.core.tree import elementwise
from shoal.core.types import ModelUpdate, Weights

NO_LAYERS = Weights({}, {})


class LayerChoice(ABC):
    """A rule that chooses some layers of any model."""

    @abstractmethod
    def names(self, task: Task) -> list[str]:
        """The names of the chosen layers, in the model's order. Raises `SpecError` if there are none."""


@dataclass(frozen=True)
class AllButBatchNorm(LayerChoice):
    """All layers except BatchNorm, found by the types of the modules."""

    def names(self, task: Task) -> list[str]:
        """See `LayerChoice`."""
        return [name for name in task.shapes if module_of(name) not in task.batch_norms]


@dataclass(frozen=True)
class AllButLast(LayerChoice):
    """All layers below the last `count` linear layers or convolutions."""

    count: int

    def names(self, task: Task) -> list[str]:
        """See `LayerChoice`."""
        every, weights = list(task.shapes), matrices(task)
        if not 0 <= self.count < len(weights):
            raise SpecError(
                f"layers must be 0 to {len(weights) - 1}, which leaves one of this model's {len(weights)} "
                f"layers to share, got {self.count}; for no sharing at all use the method local"
            )
        return every[: every.index(weights[-self.count])] if self.count else every


@dataclass(frozen=True)
class Matching(LayerChoice):
    """The layers whose names match one of the patterns, in which `*` stands for any text."""

    patterns: tuple[str, ...]

    def names(self, task: Task) -> list[str]:
        """See `LayerChoice`."""
        for pattern in self.patterns:
            if not fnmatch.filter(task.shapes, pattern):
                known = ", ".join(task.shapes)
                raise SpecError(f"the layers {pattern!r} are not in this model, which has {known}")
        return [name for name in task.shapes if any(fnmatch.fnmatch(name, p) for p in self.patterns)]


@dataclass(frozen=True)
class LastStage(LayerChoice):
    """The weights of the last convolutions before the classifier: all that are as wide as the last one.

    In a model without convolutions, those of the hidden layers as wide as the last. 1 x 1 convolutions do not
    count.
    """

    def names(self, task: Task) -> list[str]:
        """See `LayerChoice`."""
        inner = [name for name in matrices(task) if task.last is None or name not in task.head_names]
        convolutions = [name for name in inner if task.shapes[name][2:].numel() > 1]
        found = convolutions or inner
        if not found:
            raise SpecError("the model has no layer before its last; choose a model with hidden layers")
        return [name for name in found if task.shapes[name][0] == task.shapes[found[-1]][0]]


LAYER_CHOICES: dict[str, type[LayerChoice]] = {
    "all_but_batch_norm": AllButBatchNorm,
    "all_but_last": AllButLast,
    "matching": Matching,
    "last_stage": LastStage,
}


def matrices(task: Task) -> list[str]:
    """The names of the layers with at least two dimensions: weights of linear layers and convolutions."""
    return [name for name, shape in task.shapes.items() if len(shape) > 1]


def whole_layers(params: Mapping[str, Tensor]) -> list[list[str]]:
    """The names by layer: each matrix with the tensors up to the next matrix, such as a bias and a norm."""
    layers: list[list[str]] = []
    for name, value in params.items():
        if not layers or (value.dim() > 1 and any(params[other].dim() > 1 for other in layers[-1])):
            layers.append([])
        layers[-1].append(name)
    return layers


def module_of(name: str) -> str:
    """The module that a parameter or a buffer belongs to."""
    return name.rpartition(".")[0]


def some_layers(weights: Weights, names: Collection[str]) -> Weights:
    """These layers, and the buffers of their modules."""
    if len(names) == len(weights.params):
        return weights
    params = _part(weights.params, [name for name in weights.params if name in names])
    if not weights.buffers:
        return Weights(params, {})
    modules = set(map(module_of, names))
    return Weights(params, {n: value for n, value in weights.buffers.items() if module_of(n) in modules})


def _part(values: Mapping[str, Tensor], names: Sequence[str]) -> Mapping[str, Tensor]:
    return values.part(names) if isinstance(values, Flat) else {name: values[name] for name in names}


def other_layers(weights: Weights, names: Collection[str]) -> Weights:
    """All layers but these, and all buffers but those of their modules."""
    chosen = some_layers(weights, names)
    if chosen is weights:
        return NO_LAYERS
    return Weights(
        *(
            _part(values, [name for name in values if name not in taken])
            for values, taken in zip(weights, chosen, strict=True)
        )
    )


def joined(below: Weights, above: Weights) -> Weights:
    """A model with the layers of both; `above` takes precedence."""
    if above.params.keys() == below.params.keys():
        return Weights(above.params, {**below.buffers, **above.buffers})
    if not above.params and not above.buffers:
        return below
    buffers = {**below.buffers, **above.buffers}
    if isinstance(below.params, Flat) and above.params.keys() <= below.params.keys():
        return Weights(below.params.with_part(above.params), buffers)
    return Weights({**below.params, **above.params}, buffers)


def update_of(sent: Weights, trained: Weights) -> Weights:
    """`trained - sent`, for the layers that were sent."""
    params, buffers = (
        elementwise(torch.sub, now if now.keys() == there.keys() else _part(now, list(there)), there)
        for now, there in zip(trained, sent, strict=True)
    )
    return Weights(flat(params), buffers)


def update_beyond(
    sent: Weights, trained: Weights, change: Mapping[str, Tensor], loaded: Collection[str]
) -> Weights:
    """`update_of` for a client whose layers `loaded` were trained from the values it was sent: their update
    is the change by training. Only the others are subtracted; the results are written into `change`."""
    if sent.params.keys() != trained.params.keys():
        return update_of(sent, trained)
    for name, value in trained.params.items():
        if name not in loaded:
            torch.sub(value, sent.params[name], out=change[name])
    return Weights(change, elementwise(torch.sub, trained.buffers, sent.buffers))


def sizes_of(task: Task) -> Mapping[str, int]:
    """The number of parameters of each layer."""
    return {name: shape.numel() for name, shape in task.shapes.items()}


def any_layers(model: Weights) -> Weights:
    """The template of an update of some of a model's layers."""
    params, buffers = map(Some, model)
    return Weights(params, buffers)  # type: ignore[arg-type]


class LayersUpdate(NamedTuple):
    """The payload of a client that sends some layers. At the client it still has all layers, so that attacks
    and privacy work the same whichever layers are sent."""

    update: Weights
    layers: tuple[str, ...]

    def chosen(self) -> ModelUpdate:
        """The layers that are sent, as one vector, so that they are checked and summed at once."""
        chosen = some_layers(self.update, self.layers)
        return ModelUpdate(chosen._replace(params=flat(chosen.params)))
