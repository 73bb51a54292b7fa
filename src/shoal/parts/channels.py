"""Structured pruning: the channels of a model that can be removed, and the choice of those that are.

A channel is an output of a linear layer or a convolution. It can be removed if only the next such layer reads
it; the models without some of their channels are made in `parts.pruned_models`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.types import Weights
from shoal.parts.layers import matrices


class ChannelGroup(NamedTuple):
    """The channels of one layer."""

    producer: str  # the layer's weight
    vectors: tuple[str, ...]  # parameters and buffers with one number per channel: bias, norm
    consumer: str  # the weight of the next layer
    spread: int  # inputs of the next layer per channel: more than one after flattening


class Kept(NamedTuple):
    """The remaining rows and columns of a tensor: a mark for each; empty if all remain."""

    rows: Tensor  # [rows] uint8
    columns: Tensor  # [columns] uint8


Pruning = Mapping[str, Kept]  # by tensor; tensors that are not pruned are absent
ALL = torch.empty(0, dtype=torch.uint8)


@lru_cache(maxsize=4)
def channel_groups(task: Task) -> tuple[ChannelGroup, ...]:
    """The layers whose channels can be removed: found by their shapes, then tested."""
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
    """Whether channels can be removed: with the weights of a channel or of its reader set to 0, the other's
    weights must not change the outputs."""
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
    """The model with its parameters in these places set to a value."""
    params = dict(model.params)
    for name, place in places:
        if name in params:
            params[name] = params[name].clone()
            params[name][place] = value
    return model._replace(params=params)


def strongest(groups: Sequence[ChannelGroup], model: Weights) -> list[Tensor]:
    """The channels of each layer, in descending order of the L1 norm of their weights."""
    weights = [model.params[group.producer].detach() for group in groups]
    return [w.abs().flatten(1).sum(1).argsort(descending=True, stable=True).cpu() for w in weights]


def pruned(groups: Sequence[ChannelGroup], ranked: Sequence[Tensor], ratio: float) -> Pruning:
    """The pruning that removes a share of each layer's channels, the last of its ranking."""
    marks: dict[str, list[Tensor]] = {}
    for group, order in zip(groups, ranked, strict=True):
        kept = torch.zeros(len(order), dtype=torch.uint8)
        kept[order[: max(1, round((1 - ratio) * len(order)))]] = 1
        for name in (group.producer, *group.vectors):
            marks.setdefault(name, [ALL, ALL])[0] = kept
        marks.setdefault(group.consumer, [ALL, ALL])[1] = kept.repeat_interleave(group.spread)
    return {name: Kept(*both) for name, both in marks.items()}
