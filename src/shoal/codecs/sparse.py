"""Top-k and random-k: a share of the numbers of each tensor, with error feedback (`codecs.feedback`).

J. Konecny et al.: Federated learning: strategies for improving communication efficiency. 2016 (random masks).
S. U. Stich, J.-B. Cordonnier, M. Jaggi: Sparsified SGD with memory. NeurIPS 2018 (feedback).

Of n numbers, k = ceil(share n) are sent. Their positions take ceil(log2 n) bits each, or one bit for each of
the n if that is shorter; for random positions, 16 bytes are sent from which they are drawn.
"""

from __future__ import annotations

import math
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
    size_of,
    some_bytes,
    unmap_tensors,
    words_of,
)
from shoal.core.codec import Packet
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.types import Setting, Tree
from shoal.kernels import philox


class Chosen(NamedTuple):
    """Some numbers of a tensor, and their positions."""

    values: Tensor  # [k]
    places: Tensor  # uint8: the k positions in few bits each, or one bit per number of the tensor
    shape: tuple[int, ...]
    dtype: str

    def whole(self, share: float) -> Tensor:
        """The tensor, with zeros at all other positions."""
        size = size_of(self.shape, self.dtype)
        count = _counted(self.values, self.dtype, share, size)
        return _spread(self.values, _found(self.places, count, size), self.shape)


class Drawn(NamedTuple):
    """Some numbers of a tensor, and the words of the key that draws their positions."""

    values: Tensor  # [k]
    words: Tensor  # [16] uint8
    shape: tuple[int, ...]
    dtype: str

    def whole(self, share: float) -> Tensor:
        """The tensor, with zeros at all other positions."""
        size = size_of(self.shape, self.dtype)
        count = _counted(self.values, self.dtype, share, size)
        first, second = some_bytes(self.words, 16).view(np.uint64).tolist()
        return _spread(self.values, philox.sample(first, second, size, count), self.shape)


@dataclass(frozen=True)
class TopK(FeedbackCodec):
    """A share of the numbers in every tensor of an update, the largest ones; with error feedback.

    A number that is not finite counts as large, so the server sees it. Messages are sent unchanged.
    """

    share: float = 0.05
    feedback: bool = True

    def __post_init__(self) -> None:
        _check_share(self.share)

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
        from shoal.kernels import packing  # few runs need it

        def choose(path: str, leaf: Tensor) -> Tensor | Chosen:
            size, count = leaf.numel(), _count(self.share, leaf.numel())
            if count * leaf.element_size() + _places_length(count, size) >= size * leaf.element_size():
                return leaf
            places = packing.largest(numbers(leaf), count)
            return Chosen(_taken(leaf, places), _written(places, size), tuple(leaf.shape), dtype_name(leaf))

        return self.fed_back(choose, tree, memory)

    def decode(self, packet: Packet, reference: Tree = None) -> Tree:
        """See `Codec`."""
        return unmap_tensors(Chosen, lambda node: node.whole(self.share), packet.content)


@dataclass(frozen=True)
class RandomK(FeedbackCodec):
    """A share of the numbers in every tensor of an update, at random positions; with error feedback.

    Without feedback, they are multiplied by n / k, which makes them unbiased. A tensor with a number that is
    not finite is decoded as nan at the positions sent. Messages are sent unchanged.
    """

    share: float = 0.05
    feedback: bool = True

    def __post_init__(self) -> None:
        _check_share(self.share)

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

        def draw(path: str, leaf: Tensor) -> Tensor | Drawn:
            size, count = leaf.numel(), _count(self.share, leaf.numel())
            if count * leaf.element_size() + 16 >= size * leaf.element_size():
                return leaf
            words = words_of(key, path, "random_k")
            values = _taken(leaf, philox.sample(*words, size, count))
            if not self.feedback:
                values = values * (size / count)
            if not bool(leaf.isfinite().all()):
                values = torch.full_like(values, math.nan)
            seed = torch.from_numpy(np.array(words, np.uint64).view(np.uint8))
            return Drawn(values, seed, tuple(leaf.shape), dtype_name(leaf))

        return self.fed_back(draw, tree, memory)

    def decode(self, packet: Packet, reference: Tree = None) -> Tree:
        """See `Codec`."""
        return unmap_tensors(Drawn, lambda node: node.whole(self.share), packet.content)


def _check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise SpecError(f"share must be in (0, 1], got {share:g}; 0.01 to 0.1 is usual")


def _count(share: float, size: int) -> int:
    return math.ceil(share * size)


def _width(size: int) -> int:
    """The number of bits of a position."""
    return max(1, (size - 1).bit_length())


def _places_length(count: int, size: int) -> int:
    return min(packed_length(count, _width(size)), packed_length(size, 1))


def _written(places: np.ndarray, size: int) -> Tensor:
    """The positions, encoded in bits."""
    from shoal.kernels.packing import pack

    data = np.empty(_places_length(len(places), size), np.uint8)
    if packed_length(size, 1) <= packed_length(len(places), _width(size)):
        marks = np.zeros(size, np.bool_)
        marks[places] = True
        data[:] = np.packbits(marks)
    else:
        pack(places.astype(np.uint32), _width(size), data)
    return torch.from_numpy(data)


def _found(written: Tensor, count: int, size: int) -> np.ndarray:
    """The inverse of `_written`; raises `ValueError` for invalid positions in a packet."""
    from shoal.kernels.packing import unpack

    data = some_bytes(written, _places_length(count, size))
    if packed_length(size, 1) <= packed_length(count, _width(size)):
        places = np.flatnonzero(np.unpackbits(data, count=size))
        fit = len(places) == count
    else:
        codes = np.empty(count, np.uint32)
        unpack(data, _width(size), codes)
        places = codes.astype(np.int64)
        fit = bool((np.diff(places) > 0).all()) and (count == 0 or int(places[-1]) < size)
    if not fit:
        raise ValueError(f"these are not {count} places among {size}")
    return places


def _counted(values: Any, dtype: str, share: float, size: int) -> int:
    """The checked number of values, so that decoding enlarges a packet at most 1 / share times."""
    count = _count(share, size)
    fit = isinstance(values, Tensor) and tuple(values.shape) == (count,)
    if not fit or dtype_name(values) != dtype:
        raise ValueError(f"these are not {count} of {size} numbers")
    return count


def _taken(leaf: Tensor, places: np.ndarray) -> Tensor:
    return leaf.detach().reshape(-1)[torch.from_numpy(places)]


def _spread(values: Tensor, places: np.ndarray, shape: tuple[int, ...]) -> Tensor:
    whole = values.new_zeros(math.prod(shape))
    whole[torch.from_numpy(places)] = values
    return whole.reshape(shape)
