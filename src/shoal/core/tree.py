"""Arithmetic on trees of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from shoal.core.flat import NAMED, Flat, vectors
from shoal.core.types import PerClient, Tree
from shoal.kernels.fold import sum_of_squares


def tree_map(
    function: Callable[..., Any],
    first: Tree,
    *others: Tree,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Tree:
    """Apply `function` to the leaves of trees with the same structure. Dicts are matched by key.

    Implemented here because it runs several times per client, and torch's version takes ten times as long.
    """
    if is_leaf is not None and is_leaf(first):
        return function(first, *others)
    if isinstance(first, NAMED):
        return {
            name: tree_map(function, value, *(other[name] for other in others), is_leaf=is_leaf)
            for name, value in first.items()
        }
    if isinstance(first, tuple | list):
        for other in others:
            if len(other) != len(first):
                raise ValueError(f"trees differ: one has {len(first)} children, the other {len(other)}")
        parts = [tree_map(function, *inner, is_leaf=is_leaf) for inner in zip(first, *others, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return function(first, *others)


def elementwise(function: Callable[..., Any], first: Tree, *others: Tree) -> Tree:
    """`tree_map` for an elementwise function: parameters stored in one vector take one call."""
    if isinstance(first, Tensor):
        return function(first, *others)
    if type(first) is Flat:
        whole = vectors(first, *others)
        if whole is not None:
            return first.layout.tree(function(*whole))
    if isinstance(first, NAMED):
        return {
            name: elementwise(function, value, *[other[name] for other in others])
            for name, value in first.items()
        }
    if isinstance(first, tuple | list):
        parts = [elementwise(function, *inner) for inner in zip(first, *others, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return function(first, *others)


def row(tree: Tree, position: int) -> Tree:
    """One client's part of a tree whose tensors have a leading client axis."""
    return _at(tree, position, lambda field: field.rows[position])


def example_row(tree: Tree) -> Tree:
    """A tree with the structure, shapes and dtypes of any client's part of such a tree, and any numbers."""
    return _at(tree, 0, lambda field: field.rows[0] if field.like is None else field.like)


def rows_between(tree: Tree, first: int, last: int) -> Tree:
    """The part of the clients `first` to `last` (exclusive) of such a tree."""
    return _at(tree, slice(first, last), lambda field: field.some(range(first, last)))


def _at(tree: Tree, place: int | slice, of: Callable[[PerClient], Tree]) -> Tree:
    kind = type(tree)
    if kind is Tensor:
        return tree[place]
    if kind is Flat:
        return tree.layout.tree(tree.vector[place])
    if kind is PerClient:
        return of(tree)
    if isinstance(tree, dict):
        return {name: _at(value, place, of) for name, value in tree.items()}
    if isinstance(tree, tuple | list):
        parts = [_at(value, place, of) for value in tree]
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    return tree[place] if isinstance(tree, Tensor) else tree


def stack(rows: Sequence[Tree]) -> Tree:
    """Trees with the same structure as one tree whose tensors have a leading client axis."""
    return elementwise(lambda *leaves: torch.stack(leaves), *rows)


def rows_of(trees: Sequence[Tree]) -> Tree | None:
    """The result of `stack` without copying large tensors; None unless these are side by side in memory.

    A solver that trains many clients returns such trees: their tensors are rows of one tensor.
    """
    try:
        return _rows_of(trees)
    except _ApartError:
        return None


class _ApartError(Exception):
    """Trees differ in structure, or their tensors are not side by side in memory."""


FEW = 64  # elements; tensors up to this size are copied


def _rows_of(trees: Sequence[Tree]) -> Tree:
    first, kind = trees[0], type(trees[0])
    if any(type(tree) is not kind for tree in trees):
        raise _ApartError
    if kind is Tensor:
        return _tensor_rows(trees)
    if kind is Flat:
        if any(tree.layout is not first.layout and tree.layout != first.layout for tree in trees):
            raise _ApartError
        return first.layout.tree(_tensor_rows([tree.vector for tree in trees]))
    if kind is dict:
        if any(tree.keys() != first.keys() for tree in trees):
            raise _ApartError
        return {name: _rows_of([tree[name] for tree in trees]) for name in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*map(_rows_of, zip(*trees, strict=True)))
    if any(tree is not first for tree in trees):
        raise _ApartError
    return first


def _tensor_rows(rows: Sequence[Tensor]) -> Tensor:
    first = rows[0]
    shape, dtype, size = first.shape, first.dtype, first.numel() * first.element_size()
    if any(row.shape != shape or row.dtype != dtype or row.device != first.device for row in rows):
        raise _ApartError
    if first.numel() <= FEW:
        return torch.stack(list(rows))
    begins, storage = [row.data_ptr() for row in rows], first.untyped_storage().data_ptr()
    apart = begins[1] - begins[0] if len(rows) > 1 else size
    if (
        apart < size
        or apart % first.element_size()
        or begins != [begins[0] + i * apart for i in range(len(rows))]
    ):
        raise _ApartError
    if any(not row.is_contiguous() or row.untyped_storage().data_ptr() != storage for row in rows):
        raise _ApartError
    strides = (apart // first.element_size(), *first.stride())
    return first.as_strided((len(rows), *shape), strides, first.storage_offset())


def leaves(tree: Tree) -> list[Any]:
    """All leaves, in a fixed order."""
    if isinstance(tree, NAMED):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    if isinstance(tree, tuple | list):
        return [leaf for value in tree for leaf in leaves(value)]
    return [tree]


def tensors(tree: Tree) -> list[Tensor]:
    """All leaves that are tensors."""
    return [leaf for leaf in leaves(tree) if isinstance(leaf, Tensor)]


def owners(tree: Tree) -> list[Tensor]:
    """The tensors that own the numbers: for a `Flat`, only the vector that its tensors are views of."""
    if type(tree) is Flat:
        return [tree.vector]
    if isinstance(tree, tuple):
        return [leaf for part in tree for leaf in owners(part)]
    return tensors(tree)


def tensor_bytes(tree: Tree) -> int:
    """The number of bytes that its tensors take."""
    if type(tree) is Flat:
        tree = tree.vector
    if isinstance(tree, Tensor):
        return tree.numel() * tree.element_size()
    if isinstance(tree, dict):
        return sum(map(tensor_bytes, tree.values()))
    return sum(map(tensor_bytes, tree)) if isinstance(tree, tuple | list) else 0


def subtract(first: Tree, second: Tree) -> Tree:
    """`first - second`, leaf by leaf."""
    return elementwise(torch.sub, first, second)


def add(first: Tree, second: Tree) -> Tree:
    """`first + second`, leaf by leaf."""
    return elementwise(torch.add, first, second)


def zeros_like(tree: Tree) -> Tree:
    """A tree of zeros with the same shapes and dtypes."""
    return elementwise(torch.zeros_like, tree)


def squared_norm(tree: Tree) -> float:
    """The sum of the squares of all numbers, in float64."""
    if type(tree) is Flat and tree.vector.device.type == "cpu" and tree.vector.dtype == torch.float32:
        return sum_of_squares(tree.vector.detach().contiguous().numpy())
    return sum(float(leaf.double().square().sum()) for leaf in tensors(tree))


def all_finite(tree: Tree) -> bool:
    """Whether no floating-point leaf holds an infinity or a NaN."""
    if type(tree) is Flat:
        return not tree.vector.is_floating_point() or _is_finite(tree.vector)
    if isinstance(tree, dict):
        return all(map(all_finite, tree.values()))
    if isinstance(tree, tuple | list):
        return all(map(all_finite, tree))
    return not isinstance(tree, Tensor) or not tree.is_floating_point() or _is_finite(tree)


def _is_finite(leaf: Tensor) -> bool:
    # a finite sum proves that all values are finite; any other sum may be an overflow, so check every value
    return math.isfinite(float(leaf.sum())) or bool(torch.isfinite(leaf).all())
