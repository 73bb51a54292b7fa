"""Serialization of trees.

A packet is `length of the header (4 bytes, little endian) | header (JSON) | the tensors' bytes in order`.
The header describes the structure and so determines how many bytes follow: a packet's length is known
without writing it. NamedTuples are sent by name and looked up in modules that are already imported, so
reading a packet never runs foreign code.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from shoal.core.flat import NAMED, Flat, Layout
from shoal.core.types import Tree


def is_empty(tree: Tree) -> bool:
    """Whether the tree holds no values."""
    if isinstance(tree, dict):
        return all(map(is_empty, tree.values()))
    return all(map(is_empty, tree)) if isinstance(tree, tuple | list) else tree is None


def flatten(tree: Tree) -> tuple[Any, list[Tensor]]:
    """A JSON description of the structure, scalars included, and the tensors in order."""
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
    """The tree in a packet. Its tensors are views of the buffer where alignment allows it."""
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
    """The length of the JSON description, and the bytes of all tensors, without creating either."""
    if isinstance(tree, Tensor):
        return _tensor_length(tree.dtype, tree.shape), tree.numel() * tree.element_size()
    if type(tree) is Flat and tree.vector.dim() == 1:
        return _flat_length(tree.layout, tree.vector.dtype), tree.vector.numel() * tree.vector.element_size()
    if isinstance(tree, NAMED):
        characters, parts = len('["d",[]]'), list(tree.values())
        for name in tree:
            characters += len("[,]") + _json_length(name)
    elif isinstance(tree, tuple | list):
        characters, parts = _opening_length(type(tree)), list(tree)
    else:
        return len(json.dumps(_describe(tree, []))), 0
    characters, size = characters + max(len(tree) - 1, 0), 0  # with the commas between the parts
    for part in parts:
        more, bytes_more = _lengths(part)
        characters, size = characters + more, size + bytes_more
    return characters, size


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
    """The length of the brackets and the name around the values of a tuple or list."""
    if hasattr(kind, "_fields"):
        return len('["n",,[]]') + _json_length(f"{kind.__module__}:{kind.__qualname__}")
    return len('["u",[]]')


def _tensor_bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _describe(tree: Tree, found: list[Tensor]) -> Any:
    """A scalar, or a list that starts with its kind: t(ensor), d(ict), n(amed tuple), u (tuple), l(ist)."""
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
    raise TypeError(f"a tree may hold tensors, scalars, dicts, lists and tuples, not {type(tree).__name__}")


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
        raise ValueError(f"a packet names {name!r}, which is not a NamedTuple of an imported module")
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
