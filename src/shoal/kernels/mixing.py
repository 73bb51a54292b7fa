"""Inner products and mixtures of models, taken as differences from an origin that is near all of them.

Differences are taken block by block, while the numbers are in the cache. They are small compared with the
models themselves, so float32 sums over some hundred of them are as exact as the models are. The blocks and
the order of all sums depend neither on the machine nor on the threads: a pair's product does not depend on
which other vectors are multiplied in the same call, nor a mixture's number on which columns are mixed at the
same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import float32, float64, int64, types

from shoal.kernels.jit import Index, given, inner, kernel
from shoal.kernels.layout import row_at
from shoal.kernels.tiles import LANES, make_dot, make_outer

_BLOCK = 4096  # numbers of each vector that are read together
_STRIDE = _BLOCK + LANES  # between their copies, so that they do not all begin in the same line of the cache
_PIECE = 512  # numbers that are multiplied while they are in the nearest cache, and summed in float32
_FEW = 4  # vectors on the right that share a pass over those on the left
_SUMMED = 10  # vectors that are mixed together
_TALL = 5  # mixtures whose sums stay in registers

_dot, _outer, _outer_one = make_dot(2, 2), make_outer(_TALL), make_outer(1)


class Vectors(NamedTuple):
    """Contiguous float32 vectors of the same width, anywhere in memory."""

    addresses: np.ndarray  # [n] int64
    width: int
    held: Sequence[np.ndarray]  # the vectors at these addresses

    @classmethod
    def of(cls, vectors: Sequence[np.ndarray]) -> Vectors:
        """Raises `ValueError` if a vector has another type, width or layout."""
        width = len(vectors[0])
        for each in vectors:
            if each.dtype != np.float32 or each.shape != (width,) or not each.flags.c_contiguous:
                raise ValueError(f"{each.dtype} {each.shape} among vectors of {width} float32")
        return cls(np.array([each.ctypes.data for each in vectors], np.int64), width, vectors)

    def some(self, places: slice | Sequence[int]) -> Vectors:
        """The vectors at the given places."""
        return self._replace(addresses=self.addresses[places])


@inner
def _apart(
    target: np.ndarray, at: Index, address: Index, origin: np.ndarray, first: Index, count: Index
) -> None:
    """target[at:] = `count` numbers of a vector minus the origin's, zero-padded to a multiple of `LANES`."""
    here, there = row_at(address, origin.size)[first : first + count], origin[first : first + count]
    apart = target[at : at + -(-count // LANES) * LANES]
    for p in range(count):
        apart[p] = here[p] - there[p]
    for p in range(count, apart.size):
        apart[p] = 0.0


@kernel(types.void(given(float32, 1), given(int64, 1), given(int64, 1), float64[:, ::1]))
def _products(origin: np.ndarray, left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    """See `products_around`. Tiles of 2 x 2; zeros or an old vector take the place of a missing one."""
    rows = np.zeros((left.size + left.size % 2) * _STRIDE, np.float32)
    some, four = np.zeros(_FEW * _STRIDE, np.float32), np.empty(4, np.float32)
    out[:] = 0.0
    for first in range(0, origin.size, _BLOCK):
        count = min(_BLOCK, origin.size - first)
        for i in range(left.size):
            _apart(rows, i * _STRIDE, left[i], origin, first, count)
        for j in range(0, right.size, _FEW):
            few = min(_FEW, right.size - j)
            for k in range(few):
                _apart(some, k * _STRIDE, right[j + k], origin, first, count)
            for piece in range(0, count, _PIECE):
                end = min(_PIECE, -(-(count - piece) // LANES) * LANES)
                for i in range(0, left.size, 2):
                    for k in range(0, few, 2):
                        four[:] = 0.0
                        _dot(
                            four, 0, 2,
                            rows, i * _STRIDE + piece, _STRIDE,
                            some, k * _STRIDE + piece, _STRIDE, end,
                        )  # fmt: skip
                        for b in range(min(2, few - k)):
                            for r in range(min(2, left.size - i)):
                                out[i + r, j + k + b] += four[2 * b + r]


def products_around(origin: np.ndarray, left: Vectors, right: Vectors) -> np.ndarray:
    """[left, right] float64: the inner products of the vectors' differences from the origin."""
    _check(origin, left, right)
    out = np.empty((len(left.addresses), len(right.addresses)))
    _products(origin, left.addresses, right.addresses, out)
    return out


@kernel(types.void(given(float32, 1), given(float32, 2), given(int64, 1), int64, int64, given(int64, 1)))
def _mixtures(
    origin: np.ndarray, shares: np.ndarray, vectors: np.ndarray, begin: int, stop: int, out: np.ndarray
) -> None:
    """See `mix_around`."""
    n, count, weights = vectors.size, shares.shape[0], shares.reshape(-1)
    apart, mixed = np.zeros(_SUMMED * _STRIDE, np.float32), np.zeros(count * _STRIDE, np.float32)
    one, tall = np.float32(1), count - count % _TALL
    for first in range(begin, stop, _BLOCK):
        wide = min(_BLOCK, stop - first)
        there = origin[first : first + wide]
        for i in range(count):
            mixed[i * _STRIDE : i * _STRIDE + wide] = there
        for j in range(0, n, _SUMMED):
            some = min(_SUMMED, n - j)
            for k in range(some):
                _apart(apart, k * _STRIDE, vectors[j + k], origin, first, wide)
            for p in range(0, wide, LANES):
                for i in range(0, tall, _TALL):
                    place = i * _STRIDE + p
                    source = (weights, i * n + j, n, 1, apart, p, _STRIDE, some, one, LANES)
                    _outer(mixed, place, _STRIDE, *source)
                for i in range(tall, count):
                    place = i * _STRIDE + p
                    source = (weights, i * n + j, n, 1, apart, p, _STRIDE, some, one, LANES)
                    _outer_one(mixed, place, _STRIDE, *source)
        for i in range(count):
            row_at(out[i], origin.size)[first : first + wide] = mixed[i * _STRIDE : i * _STRIDE + wide]


def mix_around(
    origin: np.ndarray, shares: np.ndarray, vectors: Vectors, out: Vectors, first: int, last: int
) -> None:
    """out[i] = origin + sum_j shares[i, j] (vectors[j] - origin), in the columns from `first` to `last`.

    Calls for disjoint ranges of columns may run in parallel threads.
    """
    _check(origin, vectors, out)
    if shares.shape != (len(out.addresses), len(vectors.addresses)) or not 0 <= first <= last <= origin.size:
        raise ValueError(f"{shares.shape} shares of {len(vectors.addresses)} vectors, {first} to {last}")
    _mixtures(origin, shares.astype(np.float32), vectors.addresses, first, last, out.addresses)


def _check(origin: np.ndarray, *rows: Vectors) -> None:
    if any(some.width != origin.size for some in rows):
        raise ValueError(f"vectors of {[some.width for some in rows]} around an origin of {origin.size}")
