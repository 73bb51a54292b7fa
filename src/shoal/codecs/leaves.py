"""Helpers for codecs, which change the floating-point tensors of a tree one by one, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.core.errors import SpecError
from shoal.core.flat import NAMED, flat
from shoal.core.key import Key
from shoal.core.types import Setting, Tree

LARGEST = 2**28  # numbers in a tensor
_FLOATS = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16} | {
    "bfloat16": torch.bfloat16
}


def map_tensors(function: Callable[[str, Tensor], Any], tree: Tree, path: str = "") -> Tree:
    """Replace every floating-point tensor with elements of more than one byte by `function(path, tensor)`."""
    if isinstance(tree, Tensor):
        wide = tree.is_floating_point() and tree.element_size() > 1
        return function(path, tree) if wide else tree
    if isinstance(tree, NAMED):
        return {name: map_tensors(function, value, f"{path}.{name}") for name, value in tree.items()}
    if isinstance(tree, tuple | list):
        names = getattr(tree, "_fields", range(len(tree)))
        parts = [
            map_tensors(function, part, f"{path}.{name}") for name, part in zip(names, tree, strict=True)
        ]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return tree


def unmap_tensors(kind: type, whole: Callable[[Any], Tensor], tree: Tree) -> Tree:
    """The inverse of `map_tensors`: replace every node of this kind by `whole(node)`.

    Named tensors of one dtype are put into one vector, like those of a model.
    """
    if isinstance(tree, kind):
        return whole(tree)
    if isinstance(tree, NAMED):
        found = {name: unmap_tensors(kind, whole, value) for name, value in tree.items()}
        alike = any(isinstance(value, kind) for value in tree.values()) and all(
            isinstance(value, Tensor) for value in found.values()
        )
        return flat(found) if alike else found
    if isinstance(tree, tuple | list):
        parts = [unmap_tensors(kind, whole, part) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return tree


def numbers(leaf: Tensor) -> np.ndarray:
    """[n] float32: the numbers of a tensor, in order; without a copy if possible."""
    return leaf.detach().to("cpu", torch.float32).contiguous().reshape(-1).numpy()


def dtype_name(leaf: Tensor) -> str:
    """The name of the tensor's dtype, as expected by `reshaped`."""
    return str(leaf.dtype).removeprefix("torch.")


def reshaped(values: np.ndarray | Tensor, shape: tuple[int, ...], dtype: str) -> Tensor:
    """The numbers as a tensor with this shape and dtype."""
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(values)
    return tensor.to(_FLOATS[dtype]).reshape(shape)


def size_of(shape: Any, dtype: str) -> int:
    """The number of elements of a tensor in a packet. Packets are untrusted: the shape may be anything."""
    fit = isinstance(shape, tuple) and all(type(length) is int and length >= 0 for length in shape)
    if not fit or math.prod(shape) > LARGEST or dtype not in _FLOATS:
        raise ValueError(f"there is no tensor of the shape {shape!r} and the dtype {dtype!r}")
    return math.prod(shape)


def packed_length(count: int, bits: int) -> int:
    """The number of bytes that `count` codes of `bits` bits take."""
    return -(-count * bits // 8)


def some_bytes(data: Any, length: int) -> np.ndarray:
    """The bytes of a packet as an array; raises `ValueError` unless there are `length` of them."""
    if not isinstance(data, Tensor) or data.dtype != torch.uint8 or tuple(data.shape) != (length,):
        raise ValueError(f"{length} bytes were expected")
    return data.contiguous().numpy()


def bits_of(own: int, setting: Setting | None, allowed: tuple[int, ...]) -> int:
    """The bits for a client: from its setting `bits`, or else the codec's own."""
    bits = (setting or {}).get("bits", own)
    if bits not in allowed:
        raise SpecError(f"bits must be one of {', '.join(map(str, allowed))}; got {bits!r}")
    return int(bits)


def words_of(key: Key | None, path: str, user: str) -> tuple[int, int]:
    """The words of the key for one tensor."""
    if key is None:
        raise ValueError(f"{user} draws random numbers; give it a key")
    return key.fold(path).words
