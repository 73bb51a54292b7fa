"""Tensors by name that lie side by side in one vector.

A model's parameters are such: what is done to all of them alike is then one operation on the vector instead
of one for each tensor. To everybody else they are a mapping like any other.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Which tensors lie in a vector, and in which order."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @property
    def named(self) -> Iterable[tuple[str, torch.Size]]:
        """Names and shapes."""
        return zip(self.names, self.shapes, strict=True)

    @cached_property
    def sizes(self) -> list[int]:
        """How many numbers each tensor has."""
        return [shape.numel() for shape in self.shapes]

    def tree(self, vector: Tensor) -> Flat:
        """The tensors [..., *shape] in a vector [..., numbers], as views."""
        return Flat(self, vector)


@final  # so that to ask for the type is enough, which is faster than isinstance with an abstract class
class Flat(Mapping[str, Tensor]):
    """Tensors by name, as views of one vector, made when they are asked for."""

    __slots__ = ("_views", "layout", "vector")

    def __init__(self, layout: Layout, vector: Tensor) -> None:
        self.layout, self.vector = layout, vector
        self._views: dict[str, Tensor] = {}

    def _all(self) -> dict[str, Tensor]:
        if not self._views:
            leading, pieces = self.vector.shape[:-1], torch.split(self.vector, self.layout.sizes, -1)
            for (name, shape), piece in zip(self.layout.named, pieces, strict=True):
                self._views[name] = piece.view(leading + shape)
        return self._views

    def __getitem__(self, name: str) -> Tensor:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout.names)

    def __len__(self) -> int:
        return len(self.layout.names)

    def items(self) -> ItemsView[str, Tensor]:
        """As of a dict."""
        return self._all().items()

    def values(self) -> ValuesView[Tensor]:
        """As of a dict."""
        return self._all().values()

    def __repr__(self) -> str:
        return repr(self._all())

    def __reduce__(self) -> tuple[type, tuple[dict[str, Tensor]]]:
        return dict, (self._all(),)


NAMED = (dict, Flat)  # what holds the parts of a tree by name


def flat(values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The same tensors in one vector; as they are if they differ in number format or device."""
    if isinstance(values, Flat) or not values:
        return values
    first, *others = values.values()
    if any(value.dtype != first.dtype or value.device != first.device for value in others):
        return values
    layout = Layout(tuple(values), tuple(value.shape for value in values.values()))
    return layout.tree(torch.cat([value.reshape(-1) for value in values.values()]))


def in_one_vector(values: Mapping[str, Tensor]) -> Flat:
    """The same tensors, all of one number format, in one vector."""
    together = flat(values)
    if not isinstance(together, Flat):
        raise ValueError("tensors of different number formats cannot lie in one vector")
    return together


def vectors(*trees: Any) -> list[Tensor] | None:
    """The vectors of trees that are laid out alike; None if one of them is not."""
    layout, found = None, []
    for tree in trees:
        if type(tree) is not Flat:
            return None
        if layout is not tree.layout and layout is not None and layout != tree.layout:
            return None
        layout = tree.layout
        found.append(tree.vector)
    return found
