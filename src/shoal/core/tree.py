"""Arithmetic on trees of tensors, and their form as bytes.

A packet is `length of the header (4 bytes, little endian) | header (JSON) | the tensors' bytes in order`.
The header describes the structure, so it alone decides how many bytes follow: a packet's length is known
without writing it. NamedTuples travel by name and are looked up among the modules already imported, so
that reading a packet never runs foreign code.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from shoal.core.flat import NAMED, Flat, Layout, vectors
from shoal.core.types import Tree


def tree_map(
    function: Callable[..., Any],
    first: Tree,
    *others: Tree,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Tree:
    """`function` on the leaves of trees of one structure. Dicts are matched by their keys.

    Written out here because it runs several times a client: torch's own takes ten times as long.
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
                raise ValueError(f"trees differ: {len(first)} parts here, {len(other)} there")
        parts = [tree_map(function, *inner, is_leaf=is_leaf) for inner in zip(first, *others, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return function(first, *others)


def elementwise(function: Callable[..., Any], first: Tree, *others: Tree) -> Tree:
    """`tree_map` for a function that treats every number alike: parameters in one vector are one call."""
    return tree_map(partial(_at_once, function), first, *others, is_leaf=_is_flat)


def _is_flat(tree: Tree) -> bool:
    return isinstance(tree, Flat)


def _at_once(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    if not isinstance(first, Flat):
        return function(first, *others)
    whole = vectors(first, *others)
    if whole is None:
        return {name: function(value, *(other[name] for other in others)) for name, value in first.items()}
    return first.layout.tree(function(*whole))


def row(tree: Tree, position: int) -> Tree:
    """One client's part of a tree whose tensors have a leading client axis."""
    return elementwise(lambda leaf: leaf[position] if isinstance(leaf, Tensor) else leaf, tree)


def stack(rows: Sequence[Tree]) -> Tree:
    """Trees of one structure as one whose tensors have a leading client axis."""
    return elementwise(lambda *leaves: torch.stack(leaves), *rows)


def leaves(tree: Tree) -> list[Any]:
    """All leaves, in a fixed order."""
    if isinstance(tree, NAMED):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    if isinstance(tree, tuple | list):
        return [leaf for value in tree for leaf in leaves(value)]
    return [tree]


def tensors(tree: Tree) -> list[Tensor]:
    """The leaves that are tensors."""
    return [leaf for leaf in leaves(tree) if isinstance(leaf, Tensor)]


def subtract(first: Tree, second: Tree) -> Tree:
    """Leaf by leaf `first - second`."""
    return elementwise(torch.sub, first, second)


def add(first: Tree, second: Tree) -> Tree:
    """Leaf by leaf `first + second`."""
    return elementwise(torch.add, first, second)


def zeros_like(tree: Tree) -> Tree:
    """A tree of zeros of the same shapes and types."""
    return elementwise(torch.zeros_like, tree)


def is_empty(tree: Tree) -> bool:
    """Whether there is nothing in it to tell."""
    return all(leaf is None for leaf in leaves(tree))


def all_finite(tree: Tree) -> bool:
    """Whether no floating leaf holds an infinity or a NaN."""
    if isinstance(tree, Flat):
        return not tree.vector.is_floating_point() or _is_finite(tree.vector)
    if isinstance(tree, dict):
        return all(map(all_finite, tree.values()))
    if isinstance(tree, tuple | list):
        return all(map(all_finite, tree))
    return not isinstance(tree, Tensor) or not tree.is_floating_point() or _is_finite(tree)


def _is_finite(leaf: Tensor) -> bool:
    # what is not finite makes its sum not finite; the converse needs the longer look
    return math.isfinite(float(leaf.sum())) or bool(torch.isfinite(leaf).all())


def flatten(tree: Tree) -> tuple[Any, list[Tensor]]:
    """A JSON description of the structure (scalars included), and the tensors in its order."""
    found: list[Tensor] = []
    return _describe(tree, found), found


def unflatten(description: Any, found: Iterable[Tensor]) -> Tree:
    """The inverse of `flatten`."""
    return _rebuild(description, iter(found))


def nbytes(tree: Tree) -> int:
    """The length of `to_bytes(tree)`, without writing it."""
    characters, size = _lengths(tree)
    header = 4 + characters
    return header + -header % 8 + size


def to_bytes(tree: Tree) -> bytes:
    """The packet that holds `tree`."""
    description, found = flatten(tree)
    header = _header(description)
    return b"".join([struct.pack("<I", len(header)), header, *(_tensor_bytes(t) for t in found)])


def from_bytes(packet: bytes) -> Tree:
    """The inverse of `to_bytes`."""
    return from_buffer(memoryview(bytearray(packet)))


def from_buffer(buffer: memoryview) -> Tree:
    """The tree in a packet, whose tensors are views of the buffer where their place in it allows."""
    (length,) = struct.unpack_from("<I", buffer)
    description = json.loads(bytes(buffer[4 : 4 + length]))
    found, offset = [], 4 + length
    for dtype_name, shape in _tensor_specs(description):
        dtype = _DTYPES[dtype_name]
        size = math.prod(shape) * dtype.itemsize
        flat = (
            torch.frombuffer(buffer, dtype=torch.uint8, count=size, offset=offset) if size else torch.empty(0)
        )
        if offset % dtype.itemsize:
            flat = flat.clone()
        found.append((flat.view(dtype) if size else flat.to(dtype)).reshape(shape))
        offset += size
    return unflatten(description, found)


def into_buffer(tree: Tree, buffer: memoryview) -> int:
    """Write the packet of `tree` into a buffer; returns its length."""
    description, found = flatten(tree)
    header = _header(description)
    struct.pack_into("<I", buffer, 0, len(header))
    offset = 4 + len(header)
    buffer[4:offset] = header
    for tensor in found:
        size = tensor.numel() * tensor.element_size()
        if size:
            place = torch.frombuffer(buffer, dtype=torch.uint8, count=size, offset=offset)
            place.copy_(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8))
        offset += size
    return offset


_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2)
_OTHERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (*_FLOATS, *_OTHERS)}


def _header(description: Any) -> bytes:
    """The description, padded with spaces so that the first tensor lies on a multiple of 8 bytes."""
    text = json.dumps(description, separators=(",", ":")).encode()
    return text + b" " * (-(4 + len(text)) % 8)


def _lengths(tree: Tree) -> tuple[int, int]:
    """The length of the description as JSON, and that of the tensors, without making either."""
    if isinstance(tree, Tensor):
        characters = _tensor_length(tree.dtype, tree.shape)
        return characters, tree.numel() * tree.element_size()
    if isinstance(tree, Flat) and tree.vector.dim() == 1:
        return _flat_length(tree.layout, tree.vector.dtype), tree.vector.numel() * tree.vector.element_size()
    if isinstance(tree, NAMED):
        inner = [_lengths(value) for value in tree.values()]
        marks = len('["d",[]]') + sum(len("[,]") + _json_length(name) for name in tree)
    elif isinstance(tree, tuple | list):
        inner = [_lengths(value) for value in tree]
        marks = _opening_length(type(tree))
    else:
        return len(json.dumps(_describe(tree, []))), 0
    commas = max(len(inner) - 1, 0)
    return marks + commas + sum(c for c, _ in inner), sum(size for _, size in inner)


@lru_cache(maxsize=256)
def _flat_length(layout: Layout, dtype: torch.dtype) -> int:
    alike = {name: torch.empty(shape, dtype=dtype, device="meta") for name, shape in layout.named}
    return _lengths(alike)[0]


@lru_cache(maxsize=4096)
def _tensor_length(dtype: torch.dtype, shape: torch.Size) -> int:
    return len(f'["t","{str(dtype).removeprefix("torch.")}",[{",".join(map(str, shape))}]]')


@lru_cache(maxsize=4096, typed=True)
def _json_length(text: str) -> int:
    return len(json.dumps(text))


@lru_cache(maxsize=256)
def _opening_length(kind: type) -> int:
    """What a tuple or list has around its values."""
    if hasattr(kind, "_fields"):
        return len('["n",,[]]') + _json_length(f"{kind.__module__}:{kind.__qualname__}")
    return len('["u",[]]')


def _tensor_bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _describe(tree: Tree, found: list[Tensor]) -> Any:
    """A scalar, or a list that begins with what it is: t(ensor), d(ict), n(amed tuple), u (tuple), l(ist)."""
    if isinstance(tree, Tensor):
        found.append(tree)
        return ["t", str(tree.dtype).removeprefix("torch."), list(tree.shape)]
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, NAMED):
        return ["d", [[name, _describe(value, found)] for name, value in tree.items()]]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        kind = type(tree)
        return ["n", f"{kind.__module__}:{kind.__qualname__}", [_describe(value, found) for value in tree]]
    if isinstance(tree, tuple | list):
        return ["u" if isinstance(tree, tuple) else "l", [_describe(value, found) for value in tree]]
    raise TypeError(f"a tree holds tensors, scalars, dicts, lists and tuples, not {type(tree).__name__}")


def _rebuild(description: Any, found: Any) -> Tree:
    if not isinstance(description, list):
        return description
    kind, *rest = description
    if kind == "t":
        return next(found)
    if kind == "d":
        return {name: _rebuild(value, found) for name, value in rest[0]}
    if kind == "n":
        return _named_tuple(rest[0])(*(_rebuild(value, found) for value in rest[1]))
    values = [_rebuild(value, found) for value in rest[0]]
    return tuple(values) if kind == "u" else values


def _named_tuple(name: str) -> type:
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")):
        raise ValueError(f"a packet names {name!r}, which is no NamedTuple of an imported module")
    return found


def _tensor_specs(description: Any) -> Iterable[tuple[str, list[int]]]:
    if not isinstance(description, list):
        return
    kind, *rest = description
    if kind == "t":
        yield rest[0], rest[1]
    elif kind == "d":
        for _, value in rest[0]:
            yield from _tensor_specs(value)
    else:
        for value in rest[-1]:
            yield from _tensor_specs(value)
