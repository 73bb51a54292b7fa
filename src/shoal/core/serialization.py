"""Serialization of trees.

A packet is `length of the header (4 bytes, little endian) | header (JSON) | the tensors' bytes in order`.
The header describes the structure and so determines how many bytes follow: a packet's length is known
without writing it. NamedTuples are sent by name and looked up in modules that are already imported, so
reading a packet never runs foreign code.

Packets are untrusted input. Whatever the bytes, reading them returns a tree or raises a `PacketError`, and
takes memory in proportion to their length.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from shoal.core.errors import PacketError
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


def unflatten(description: Any, found: Sequence[Tensor]) -> Tree:
    """The inverse of `flatten`."""
    wanted, rest = len(_tensor_specs(description, most=sys.maxsize)), iter(found)
    if wanted != len(found):
        raise PacketError(f"the structure needs {wanted} tensors, but there are {len(found)}")
    return _rebuild(description, rest)


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
    tree, end = _read(memoryview(bytearray(packet)))
    if end != len(packet):
        raise PacketError(f"{len(packet) - end:,} bytes follow the packet's {end:,}")
    return tree


def from_buffer(buffer: memoryview) -> Tree:
    """The tree of the packet that a buffer starts with; its tensors are views where alignment allows it."""
    return _read(buffer)[0]


def _read(buffer: memoryview) -> tuple[Tree, int]:
    """The tree at the start of a buffer, and where its packet ends."""
    if len(buffer) < 4:
        raise PacketError(f"a packet has at least 4 bytes, got {len(buffer)}")
    (length,) = struct.unpack_from("<I", buffer)
    if length > min(len(buffer) - 4, LONGEST_HEADER):
        raise PacketError(f"the header should take {length:,} bytes, more than there are or may be")
    try:
        description = json.loads(bytes(buffer[4 : 4 + length]))
    except (ValueError, RecursionError) as error:
        raise PacketError(f"the header is not JSON: {error}") from None
    found, offset = [], 4 + length
    for dtype_name, shape in _tensor_specs(description):
        dtype = _DTYPES[dtype_name]
        size = math.prod(shape) * dtype.itemsize
        if size > len(buffer) - offset:
            raise PacketError(f"a tensor of shape {shape} takes {size:,} bytes, more than there are")
        found.append(_tensor(buffer, dtype, shape, size, offset))
        offset += size
    return _rebuild(description, iter(found)), offset


def _tensor(buffer: memoryview, dtype: torch.dtype, shape: Sequence[int], size: int, offset: int) -> Tensor:
    if not size:
        return torch.empty(shape, dtype=dtype)
    flat = torch.frombuffer(buffer, dtype=torch.uint8, count=size, offset=offset)
    if offset % dtype.itemsize:
        flat = flat.clone()
    return flat.view(dtype).reshape(shape)


def into_buffer(tree: Tree, buffer: memoryview) -> int:
    """Write the packet of `tree` into a buffer; returns its length."""
    description, found = flatten(tree)
    header = _header(description)
    struct.pack_into("<I", buffer, 0, len(header))
    offset = 4 + len(header)
    buffer[4:offset] = header
    for tensor in found:
        size = tensor.numel() * tensor.element_size()
        if size and offset % tensor.element_size() == 0:  # one pass over memory, whatever the tensor's layout
            place = torch.frombuffer(buffer, dtype=tensor.dtype, count=tensor.numel(), offset=offset)
            place.view(tensor.shape).copy_(tensor.detach())
        elif size:
            place = torch.frombuffer(buffer, dtype=torch.uint8, count=size, offset=offset)
            place.copy_(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8))
        offset += size
    return offset


LONGEST_HEADER = 2**24  # bytes
MOST_NODES = 2**17  # of a tree, tensors included: each takes some hundred bytes, whatever its length
DEEPEST = 50  # levels of a tree
MOST_AXES = 32  # of a tensor

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


def _rebuild(description: Any, found: Iterator[Tensor]) -> Tree:
    """The tree of a description that `_tensor_specs` has accepted."""
    if not isinstance(description, list):
        return description
    kind, *rest = description
    if kind == "t":
        return next(found)
    if kind == "d":
        return {name: _rebuild(value, found) for name, value in rest[0]}
    if kind == "n":
        # without calling the class, which might run its own code
        return tuple.__new__(_named_tuple(rest[0]), [_rebuild(value, found) for value in rest[1]])
    values = [_rebuild(value, found) for value in rest[0]]
    return tuple(values) if kind == "u" else values


def _named_tuple(name: str) -> type[tuple]:
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, "__dict__", {}).get(part)  # `getattr` might run code of the module
    if not (isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")):
        raise PacketError(f"a packet names {name!r}, which is not a NamedTuple of an imported module")
    return found


def _tensor_specs(description: Any, most: int = MOST_NODES) -> list[tuple[str, list[int]]]:
    """Dtypes and shapes of all tensors, in order; raises `PacketError` if it does not describe a tree."""
    found: list[tuple[str, list[int]]] = []
    _check(description, found, [most], DEEPEST)
    return found


def _check(description: Any, found: list[tuple[str, list[int]]], left: list[int], depth: int) -> None:
    left[0] -= 1
    if left[0] < 0 or depth < 0:
        raise PacketError(
            f"the tree has more than {MOST_NODES:,} nodes, or is nested more than {DEEPEST} deep"
        )
    if not isinstance(description, list):
        if isinstance(description, dict):
            raise PacketError("the header holds a JSON object, which no tree does")
        return
    for value in _children(description, found):
        _check(value, found, left, depth - 1)


def _children(description: list[Any], found: list[tuple[str, list[int]]]) -> Sequence[Any]:
    """The children of a node; adds the node to `found` if it is a tensor."""
    match description:
        case ["t", str(dtype), list(shape)] if dtype in _DTYPES and _is_shape(shape):
            found.append((dtype, shape))
            return ()
        case ["d", list(entries)] if all(isinstance(entry, list) and len(entry) == 2 for entry in entries):
            names = [name for name, _ in entries]
            if not all(isinstance(name, str | int | float | None) for name in names):
                raise PacketError("a name is neither a text nor a number")
            if len(set(names)) < len(names):
                raise PacketError("a name occurs twice")
            return [value for _, value in entries]
        case ["n", str(name), list(values)]:
            fields = _named_tuple(name)._fields  # type: ignore[attr-defined]
            if len(fields) != len(values):
                raise PacketError(f"{name} has {len(fields)} fields, not {len(values)}")
            return values
        case ["u" | "l", list(values)]:
            return values
    raise PacketError("a node is no tensor, dict, tuple or list")


def _is_shape(shape: list[Any]) -> bool:
    """Whether a tensor may have this shape: strides must not overflow, even if a length is 0."""
    lengths = [max(n, 1) for n in shape if type(n) is int and n >= 0]
    return len(lengths) == len(shape) <= MOST_AXES and math.prod(lengths) < 2**60
