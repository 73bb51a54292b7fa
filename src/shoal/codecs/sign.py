"""Sign: one bit per number and the mean absolute value of each tensor, with error feedback.

    C(e) = mean |e| sgn(e),   e <- e + D - C(e)

S. P. Karimireddy, Q. Rebjock, S. U. Stich, M. Jaggi: Error feedback fixes SignSGD and other gradient
compression schemes. ICML 2019. A packet of n numbers has 4 + ceil(n / 8) bytes. Zero counts as positive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.codecs.feedback import FeedbackCodec
from shoal.codecs.leaves import (
    dtype_name,
    numbers,
    packed_length,
    reshaped,
    size_of,
    some_bytes,
    unmap_tensors,
)
from shoal.core.codec import Packet
from shoal.core.key import Key
from shoal.core.types import Setting, Tree

_HEADER = 4  # bytes


class Signs(NamedTuple):
    """The signs of a tensor, and their common magnitude."""

    data: Tensor  # [4 + ceil(n / 8)] uint8: the magnitude as float32, then one bit per number, 1 for negative
    shape: tuple[int, ...]
    dtype: str

    def whole(self) -> Tensor:
        """The tensor."""
        size = size_of(self.shape, self.dtype)
        data = some_bytes(self.data, _HEADER + packed_length(size, 1))
        (scale,) = data[:_HEADER].view(np.float32)
        negative = np.unpackbits(data[_HEADER:], count=size)
        return reshaped(np.array([scale, -scale], np.float32)[negative], self.shape, self.dtype)


@dataclass(frozen=True)
class Sign(FeedbackCodec):
    """The sign of every number of an update times the mean absolute value of its tensor; with error feedback.

    A tensor with a number that is not finite is decoded as all non-finite. Messages are sent unchanged.
    """

    feedback: bool = True

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
        return self.fed_back(lambda path, leaf: _signs(leaf), tree, memory)

    def decode(self, packet: Packet, reference: Tree = None) -> Tree:
        """See `Codec`."""
        return unmap_tensors(Signs, Signs.whole, packet.content)


def _signs(leaf: Tensor) -> Tensor | Signs:
    length = _HEADER + packed_length(leaf.numel(), 1)
    if length >= leaf.numel() * leaf.element_size():
        return leaf
    x, data = numbers(leaf), np.empty(length, np.uint8)
    data[:_HEADER].view(np.float32)[0] = np.abs(x).mean(dtype=np.float64)
    data[_HEADER:] = np.packbits(x < 0)
    return Signs(torch.from_numpy(data), tuple(leaf.shape), dtype_name(leaf))
