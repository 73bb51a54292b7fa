"""Named tensors stored in one contiguous vector.

A model's parameters are stored like this, so that an elementwise operation on all of them is one operation
on the vector instead of one for each tensor. They can be used like any other mapping.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from math import prod
from typing import Any, final

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """The names and shapes of the tensors in a vector, in order."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @property
    def named(self) -> Iterable[tuple[str, torch.Size]]:
        """Pairs of name and shape."""
        return zip(self.names, self.shapes, strict=True)

    @cached_property
    def keys(self) -> KeysView[str]:
        """The names, which can be compared with those of any other mapping."""
        return dict.fromkeys(self.names).keys()

    @cached_property
    def sizes(self) -> list[int]:
        """The number of elements of each tensor."""
        return [shape.numel() for shape in self.shapes]

    @cached_property
    def places(self) -> list[tuple[str, torch.Size, tuple[int, ...], int]]:
        """Name, shape, strides and first element of each tensor."""
        firsts = accumulate(self.sizes, initial=0)
        strides = [tuple(prod(shape[axis + 1 :]) for axis in range(len(shape))) for shape in self.shapes]
        return list(zip(self.names, self.shapes, strides, firsts, strict=False))

    def tree(self, vector: Tensor) -> Flat:
        """The tensors [..., *shape] of a vector [..., elements], as views."""
        return Flat(self, vector)


@final  # so that `type(x) is Flat` suffices, which is faster than isinstance with an abstract base class
class Flat(Mapping[str, Tensor]):
    """Named tensors as views of one vector; the views are created on first access."""

    __slots__ = ("_views", "layout", "vector")

    def __init__(self, layout: Layout, vector: Tensor) -> None:
        self.layout, self.vector = layout, vector
        self._views: dict[str, Tensor] = {}

    def _all(self) -> dict[str, Tensor]:
        if not self._views:  # assigned only once it is complete: another thread may be reading it
            self._views = self._fast_views() if _is_plain(self.vector) else self._any_views()
        return self._views

    def _any_views(self) -> dict[str, Tensor]:
        leading, pieces = self.vector.shape[:-1], torch.split(self.vector, self.layout.sizes, -1)
        return {
            name: piece.view(leading + shape)
            for (name, shape), piece in zip(self.layout.named, pieces, strict=True)
        }

    def _fast_views(self) -> dict[str, Tensor]:
        """The same views in a quarter of the time; every client of a round may need them."""
        view, start = self.vector.as_strided, self.vector.storage_offset()
        return {
            name: view(shape, strides, start + first) for name, shape, strides, first in self.layout.places
        }

    def __getitem__(self, name: str) -> Tensor:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout.names)

    def __len__(self) -> int:
        return len(self.layout.names)

    def __contains__(self, name: object) -> bool:
        return name in self.layout.keys

    def keys(self) -> KeysView[str]:
        """See `dict.keys`."""
        return self.layout.keys

    def items(self) -> ItemsView[str, Tensor]:
        """See `dict.items`."""
        return self._all().items()

    def values(self) -> ValuesView[Tensor]:
        """See `dict.values`."""
        return self._all().values()

    def part(self, names: Iterable[str]) -> Mapping[str, Tensor]:
        """The tensors with these names, in this order: a view of the vector if they are adjacent in it."""
        chosen = tuple(names)
        found = _neighbours(self.layout, chosen)
        if found is None:
            return {name: self[name] for name in chosen}
        layout, first, last = found
        return layout.tree(self.vector[..., first:last])

    def with_part(self, part: Mapping[str, Tensor]) -> Flat:
        """A copy with these tensors in place of its own."""
        found = _neighbours(self.layout, part.layout.names) if type(part) is Flat else None
        if found is not None and type(part) is Flat:
            _, first, last = found
            vector = torch.empty_like(self.vector)
            vector[..., :first], vector[..., last:] = self.vector[..., :first], self.vector[..., last:]
            vector[..., first:last] = part.vector
            return self.layout.tree(vector)
        changed = self.layout.tree(self.vector.clone())
        for name, value in part.items():
            changed[name].copy_(value)
        return changed

    def __repr__(self) -> str:
        return repr(self._all())

    def __reduce__(self) -> tuple[type, tuple[dict[str, Tensor]]]:
        return dict, (self._all(),)


def _is_plain(vector: Tensor) -> bool:
    """Whether a tensor is a contiguous vector that does not require gradients."""
    return vector.dim() == 1 and vector.is_contiguous() and not vector.requires_grad


@lru_cache(maxsize=256)
def _neighbours(layout: Layout, names: tuple[str, ...]) -> tuple[Layout, int, int] | None:
    """The layout of some tensors, and where they begin and end in the vector; None if they are scattered."""
    place = layout.names.index(names[0]) if names else 0
    if not names or layout.names[place : place + len(names)] != names:
        return None
    first, shapes = sum(layout.sizes[:place]), layout.shapes[place : place + len(names)]
    piece = Layout(names, shapes)
    return piece, first, first + sum(piece.sizes)


@lru_cache(maxsize=256)
def is_part(some: Layout, every: Layout) -> bool:
    """Whether every tensor of the layout `some` is also in `every`, by name and shape."""
    known = dict(every.named)
    return all(known.get(name) == shape for name, shape in some.named)


NAMED = (dict, Flat)  # the types of a tree's nodes with named children


def flat(values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The same tensors in one vector; unchanged if their dtypes or devices differ."""
    if isinstance(values, Flat) or not values:
        return values
    first, *others = values.values()
    if any(value.dtype != first.dtype or value.device != first.device for value in others):
        return values
    layout = Layout(tuple(values), tuple(value.shape for value in values.values()))
    return layout.tree(torch.cat([value.reshape(-1) for value in values.values()]))


def in_one_vector(values: Mapping[str, Tensor]) -> Flat:
    """The same tensors, which must have one dtype, in one vector."""
    together = flat(values)
    if not isinstance(together, Flat):
        raise ValueError("tensors of different dtypes cannot share one vector")
    return together


def vectors(*trees: Any) -> list[Tensor] | None:
    """The vectors of trees with the same layout; None if the layouts differ or a tree is not flat."""
    layout, found = None, []
    for tree in trees:
        if type(tree) is not Flat:
            return None
        if layout is not tree.layout and layout is not None and layout != tree.layout:
            return None
        layout = tree.layout
        found.append(tree.vector)
    return found
