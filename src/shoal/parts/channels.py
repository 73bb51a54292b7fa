"""Structured pruning: channels of a model that can be removed, and models without some of them.

A channel is an output of a linear layer or a convolution. It can be removed if nothing but the next such
layer reads it; then its numbers in both layers, and in a norm between them, make up a smaller model. With
zeros in their place the whole model computes the same, and training leaves them 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.gate import Like
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.types import Weights
from shoal.parts.layers import matrices


class ChannelGroup(NamedTuple):
    """The channels of one layer."""

    producer: str  # the layer's weight
    vectors: tuple[str, ...]  # parameters and buffers with a number for each channel: bias, norm
    consumer: str  # the weight of the next layer
    spread: int  # inputs of that layer for each channel: more than one after flattening


class Kept(NamedTuple):
    """What is left of a tensor: marks for its rows and columns, empty where all are left."""

    rows: Tensor  # [rows] uint8
    columns: Tensor  # [columns] uint8


Pruning = Mapping[str, Kept]  # by tensor; those that are whole are absent
ALL = torch.empty(0, dtype=torch.uint8)


@lru_cache(maxsize=4)
def channel_groups(task: Task) -> tuple[ChannelGroup, ...]:
    """The layers whose channels can be removed, found by their shapes and tried out."""
    every, model = list(task.shapes), task.init(Key.from_seed(0))
    found = []
    for producer, consumer in pairwise(matrices(task)):
        channels, inputs = task.shapes[producer][0], task.shapes[consumer][1]
        between = every[every.index(producer) + 1 : every.index(consumer)]
        modules = {name.rpartition(".")[0] for name in between}
        tensors = {**{n: model.params[n] for n in between}, **model.buffers}
        vectors = tuple(
            name
            for name, value in tensors.items()
            if value.shape == (channels,) and name.rpartition(".")[0] in modules
        )
        group = ChannelGroup(producer, vectors, consumer, inputs // channels)
        if inputs % channels == 0 and _removable(task, model, group):
            found.append(group)
    return tuple(found)


def _removable(task: Task, model: Weights, group: ChannelGroup) -> bool:
    """Whether a channel and its reader can go: each alone, without the other's weights, is irrelevant."""
    x = Key.from_seed(1).uniform((2, *task.shape)).to(task.device)
    for channel in (0, model.params[group.producer].shape[0] - 1):
        first = channel * group.spread
        made = [(name, slice(channel, channel + 1)) for name in (group.producer, *group.vectors)]
        read = [(group.consumer, (slice(None), slice(first, first + group.spread)))]
        for gone, other in ((made, read), (read, made)):
            without = _changed(model, gone, 0.0)
            more = _changed(without, other, 1.0)
            with torch.no_grad():
                if not torch.equal(task.forward(without, x)[0], task.forward(more, x)[0]):
                    return False
    return True


def _changed(model: Weights, places: Sequence[tuple[str, Any]], value: float) -> Weights:
    """The model with other parameters in these places."""
    params = dict(model.params)
    for name, place in places:
        if name in params:
            params[name] = params[name].clone()
            params[name][place] = value
    return model._replace(params=params)


def pruned(groups: Sequence[ChannelGroup], model: Weights, ratio: float) -> Pruning:
    """Without a share of each layer's channels: those whose weights have the smallest L1 norm."""
    marks: dict[str, list[Tensor]] = {}
    for group in groups:
        weight = model.params[group.producer]
        count = max(1, round((1 - ratio) * len(weight)))
        strongest = weight.detach().abs().flatten(1).sum(1).argsort(descending=True, stable=True)
        kept = torch.zeros(len(weight), dtype=torch.uint8)
        kept[strongest[:count].cpu()] = 1
        for name in (group.producer, *group.vectors):
            marks.setdefault(name, [ALL, ALL])[0] = kept
        marks.setdefault(group.consumer, [ALL, ALL])[1] = kept.repeat_interleave(group.spread)
    return {name: Kept(*both) for name, both in marks.items()}


def smaller(weights: Weights, pruning: Pruning) -> Weights:
    """The rows and columns that are left."""
    if not pruning:
        return weights
    return Weights(
        *({name: _left(value, pruning.get(name)) for name, value in part.items()} for part in weights)
    )


def enlarged(weights: Weights, pruning: Pruning) -> Weights:
    """The inverse, with zeros where rows and columns were removed."""
    if not pruning:
        return weights
    return Weights(
        *({name: placed(value, pruning.get(name)) for name, value in part.items()} for part in weights)
    )


def whole_shapes(weights: Weights, pruning: Pruning) -> Weights:
    """The template of `enlarged`."""

    def template(name: str, value: Tensor) -> Like:
        shape = list(value.shape)
        for axis, marks in enumerate(pruning.get(name, ())):
            shape[axis : axis + 1] = [len(marks) or shape[axis]] if axis < len(shape) else []
        return Like(tuple(shape), value.dtype)

    params, buffers = ({name: template(name, value) for name, value in part.items()} for part in weights)
    return Weights(params, buffers)  # type: ignore[arg-type]


def _left(value: Tensor, kept: Kept | None) -> Tensor:
    if kept is None:
        return value
    value = value.index_select(0, _places(kept.rows, value)) if len(kept.rows) else value
    return value.index_select(1, _places(kept.columns, value)) if len(kept.columns) else value


def placed(value: Tensor, kept: Kept | None) -> Tensor:
    """A tensor with zeros where rows and columns were removed."""
    if kept is None:
        return value
    if len(kept.columns):
        wide = value.new_zeros(len(value), len(kept.columns), *value.shape[2:])
        value = wide.index_copy_(1, _places(kept.columns, value), value)
    if len(kept.rows):
        tall = value.new_zeros(len(kept.rows), *value.shape[1:])
        value = tall.index_copy_(0, _places(kept.rows, value), value)
    return value


def _places(marks: Tensor, value: Tensor) -> Tensor:
    return _marked(marks.cpu().numpy().tobytes()).to(value.device)


@lru_cache(maxsize=256)  # a round asks for the same few again and again
def _marked(marks: bytes) -> Tensor:
    return torch.from_numpy(np.flatnonzero(np.frombuffer(marks, np.uint8)))
