"""QSGD: a sign and a random level per number, in units of the norm of its bucket.

D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic: QSGD: Communication-efficient SGD via gradient
quantization and encoding. NeurIPS 2017. With s = 2^(b - 1) - 1 levels for b bits:

    Q(v)_i = |v| sgn(v_i) l_i / s,   l_i = floor(s |v_i| / |v| + u_i),   u_i random in [0, 1)

It is unbiased, and E |Q(v) - v|^2 <= min(n / s^2, sqrt(n) / s) |v|^2 for a bucket of n numbers.
Departure: fixed-length codes in place of Elias codes, so that the length does not depend on the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

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
from shoal.codecs.uniform import BITS, WHOLE
from shoal.core.codec import Codec, Packet
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.types import Setting, Tree

LEVEL_BITS = BITS[1:]  # at least 2: one bit is the sign


class Levels(NamedTuple):
    """A tensor as signs and levels."""

    data: Tensor  # [4 buckets + ceil(n bits / 8)] uint8: the norm of each bucket as float32, then the codes
    bits: int
    bucket: int
    shape: tuple[int, ...]
    dtype: str

    def whole(self) -> Tensor:
        """The tensor that the levels represent."""
        from shoal.kernels.packing import unpack_buckets  # few runs need it

        if self.bits not in LEVEL_BITS[:-1] or type(self.bucket) is not int or self.bucket < 1:
            raise ValueError(f"there are no levels of {self.bits!r} bits in buckets of {self.bucket!r}")
        size = size_of(self.shape, self.dtype)
        head = _header(size, self.bucket)
        data = some_bytes(self.data, head + packed_length(size, self.bits))
        values = np.empty(size, np.float32)
        norms = data[:head].copy().view(np.float32)  # in a packet they may be unaligned
        unpack_buckets(data[head:], self.bucket, self.bits, norms, values)
        return reshaped(values, self.shape, self.dtype)


@dataclass(frozen=True)
class Qsgd(Codec):
    """QSGD: a sign and a random level, `bits` in all, in units of the norm of each bucket of numbers.

    It is unbiased. A bucket with a number that is not finite is decoded as all nan.
    """

    bits: int = 8
    bucket: int = 512

    def __post_init__(self) -> None:
        bits_of(self.bits, None, LEVEL_BITS)
        if self.bucket < 1:
            raise SpecError(f"bucket must be at least 1, got {self.bucket}; 512 is usual")

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
        from shoal.kernels.packing import pack_buckets

        bits = bits_of(self.bits, setting, LEVEL_BITS)
        if bits == WHOLE:
            return Packet(tree), memory

        def code(path: str, leaf: Tensor) -> Tensor | Levels:
            head, size = _header(leaf.numel(), self.bucket), leaf.numel()
            data = np.zeros(head + packed_length(size, bits), np.uint8)
            if len(data) >= size * leaf.element_size():
                return leaf
            words = words_of(key, path, "qsgd")
            norms = data[:head].view(np.float32)
            pack_buckets(numbers(leaf), self.bucket, bits, *words, norms, data[head:])
            return Levels(torch.from_numpy(data), bits, self.bucket, tuple(leaf.shape), dtype_name(leaf))

        return Packet(map_tensors(code, tree)), memory

    def decode(self, packet: Packet, reference: Tree = None) -> Tree:
        """See `Codec`."""
        return unmap_tensors(Levels, Levels.whole, packet.content)


def _header(size: int, bucket: int) -> int:
    return 4 * -(-size // bucket)
