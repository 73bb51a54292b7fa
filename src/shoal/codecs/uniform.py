"""Uniform: every tensor as integers of b bits between its smallest and its largest value.

    s = (max - min) / (2^b - 1),   q = floor((x - min) / s + u),   x' = min + s q

with u = 1/2, rounding to the nearest, or u random in [0, 1), which is unbiased. The packet of a tensor of n
numbers has 8 + ceil(n b / 8) bytes: min and max as float32, then the codes without gaps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.codecs.leaves import (
    bits_of,
    dtype_name,
    map_tensors,
    numbers,
    packed_length,
    reshaped,
    size_of,
    some_bytes,
    unmap_tensors,
    words_of,
)
from shoal.core.codec import Codec, Packet
from shoal.core.key import Key
from shoal.core.types import Setting, Tree

BITS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32)
WHOLE = 32  # bits that stand for: unchanged
_HEADER = 8  # bytes


class Codes(NamedTuple):
    """A tensor as codes of a few bits."""

    data: (
        Tensor  # [8 + ceil(n bits / 8)] uint8: the smallest and the largest number as float32, then the codes
    )
    bits: int
    shape: tuple[int, ...]
    dtype: str

    def whole(self) -> Tensor:
        """The tensor that the codes represent."""
        from shoal.kernels.packing import unpack_affine  # few runs need it

        if self.bits not in BITS[:-1]:
            raise ValueError(f"there are no codes of {self.bits!r} bits")
        size = size_of(self.shape, self.dtype)
        data = some_bytes(self.data, _HEADER + packed_length(size, self.bits))
        low, high = data[:_HEADER].view(np.float32).tolist()
        values = np.empty(size, np.float32)
        unpack_affine(data[_HEADER:], low, high, self.bits, values)
        return reshaped(values, self.shape, self.dtype)


@dataclass(frozen=True)
class UniformAffine(Codec):
    """Integers of 1 to 8, 12 or 16 bits between a tensor's smallest and largest value; 32: unchanged.

    With rounding to the nearest, the error is at most half a step, (max - min) / (2^bits - 1) / 2, plus
    float32's own rounding; with stochastic rounding it is below a step, and 0 on average. A constant tensor
    is exact. A tensor with a number that is not finite is decoded as all nan, so that the server sees it. A
    tensor that would not get shorter is sent unchanged.
    """

    bits: int = 8
    rounding: Literal["nearest", "stochastic"] = "nearest"

    def __post_init__(self) -> None:
        bits_of(self.bits, None, BITS)

    def encode(
        self,
        tree: Tree,
        *,
        setting: Setting | None = None,
        key: Key | None = None,
        reference: Tree = None,
        memory: Any = None,
    ) -> tuple[Packet, Any]:
        """See `Codec`."""
        bits = bits_of(self.bits, setting, BITS)
        if bits == WHOLE:
            return Packet(tree), memory

        def code(path: str, leaf: Tensor) -> Tensor | Codes:
            length = _HEADER + packed_length(leaf.numel(), bits)
            if length >= leaf.numel() * leaf.element_size():
                return leaf
            random = self.rounding == "stochastic"
            words = words_of(key, path, "stochastic rounding") if random else (0, 0)
            return Codes(
                _coded(numbers(leaf), bits, length, random, words), bits, tuple(leaf.shape), dtype_name(leaf)
            )

        return Packet(map_tensors(code, tree)), memory

    def decode(self, packet: Packet, reference: Tree = None) -> Tree:
        """See `Codec`."""
        return unmap_tensors(Codes, Codes.whole, packet.content)


def _coded(x: np.ndarray, bits: int, length: int, random: bool, words: tuple[int, int]) -> Tensor:
    from shoal.kernels.packing import pack_affine

    data = np.zeros(length, np.uint8)
    low, high = float(x.min()), float(x.max())  # nan if there is one
    if math.isfinite(low) and math.isfinite(high):
        pack_affine(x, low, high, bits, random, *words, data[_HEADER:])
    else:
        low = high = math.nan
    data[:_HEADER].view(np.float32)[:] = low, high
    return torch.from_numpy(data)
