"""Inner products and mixtures of long float32 vectors, summed in float64.

Columns are processed in blocks that stay in the cache, and within a block a small tile of sums stays in
registers while its columns are read. The product of two float32 numbers is exact in float64, and every sum
has four lanes on every machine: lane l adds the columns l, l + 4, l + 8, ... in order, and the lanes are
added at the end. So the bits of an inner product depend neither on the machine nor on which other vectors are
multiplied in the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import boolean, carray, float32, float64, int64, types  # type: ignore[attr-defined]

from shoal.kernels.jit import emitted, given, inner, kernel
from shoal.kernels.vectors import fma

_LANES = 4
_TILE = 3  # rows and columns: 9 sums and 6 vectors of AVX2's 16 registers
_BLOCK = 256  # numbers of each vector that are processed together
_MIXED = 1024  # the same for mixtures
_BYTES = 4  # of a float32

_INDEX, _VECTOR = ir.IntType(64), ir.VectorType(ir.DoubleType(), _LANES)


@emitted
def _at(typing: Any, address: Any) -> Any:
    """The memory at an address, as float32."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(float32)(int64), emit  # type: ignore[no-untyped-call]


@emitted
def _add_tile(typing: Any, sums: Any, at: Any, left: Any, i: Any, right: Any, j: Any, end: Any) -> Any:
    """sums[at + 9 vectors] += the products of three rows of `left` from i on and three of `right` from j on.

    Both are [rows, _BLOCK]; columns up to `end`, a positive multiple of `_LANES`, are processed.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        def start(position: int, offset: ir.Value) -> ir.Value:
            array = context.make_array(signature.args[position])(context, builder, args[position])
            return builder.gep(array.data, [offset])

        def vector(place: ir.Value, offset: ir.Value) -> ir.Value:
            return builder.bitcast(builder.gep(place, [offset]), _VECTOR.as_pointer())

        length = _INDEX(_BLOCK)
        total = start(0, args[1])
        a, b = start(2, builder.mul(args[3], length)), start(4, builder.mul(args[5], length))
        places = [vector(total, _INDEX(k * _LANES)) for k in range(_TILE * _TILE)]
        before, body = builder.block, builder.append_basic_block("tile")
        begun = [builder.load(place, align=8) for place in places]
        builder.branch(body)
        builder.position_at_end(body)
        column = builder.phi(_INDEX)
        column.add_incoming(_INDEX(0), before)
        held = [builder.phi(_VECTOR) for _ in places]
        rows, columns = (
            [
                builder.load(vector(place, builder.add(column, _INDEX(r * _BLOCK))), align=8)
                for r in range(_TILE)
            ]
            for place in (a, b)
        )
        made = [fma(builder, rows[k // _TILE], columns[k % _TILE], held[k]) for k in range(len(places))]
        following = builder.add(column, _INDEX(_LANES))
        column.add_incoming(following, body)
        for phi, first, then in zip(held, begun, made, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(then, body)
        after = builder.append_basic_block("after")
        builder.cbranch(builder.icmp_signed("<", following, args[6]), body, after)
        builder.position_at_end(after)
        for value, place in zip(made, places, strict=True):
            builder.store(value, place, align=8)
        return context.get_dummy_value()

    return types.void(sums, int64, left, int64, right, int64, int64), emit


@inner
def _widen(addresses: np.ndarray, width: int, first: int, end: int, wide: np.ndarray) -> None:
    """wide[i, :end] = the numbers of vector i from `first` on, followed by zeros."""
    count = min(end, width - first)
    for i in range(addresses.size):
        source, target = carray(_at(addresses[i]), width)[first : first + count], wide[i]
        for p in range(count):
            target[p] = source[p]
        for p in range(count, end):
            target[p] = 0.0


@kernel(types.void(given(int64, 1), given(int64, 1), int64, boolean, float64[:, ::1]))
def inner_products(left: np.ndarray, right: np.ndarray, width: int, same: bool, out: np.ndarray) -> None:
    """See `products`. Left and right are the vectors' addresses; if they are the same, half is computed."""
    tall, broad = -(-left.size // _TILE), -(-right.size // _TILE)
    rows = np.zeros((tall * _TILE, _BLOCK))
    columns = rows if same else np.zeros((broad * _TILE, _BLOCK))
    sums = np.zeros((tall, broad, _TILE, _TILE, _LANES))
    flat = sums.reshape(-1)
    for first in range(0, width, _BLOCK):
        end = min(_BLOCK, -(-(width - first) // _LANES) * _LANES)
        _widen(left, width, first, end, rows)
        if not same:
            _widen(right, width, first, end, columns)
        for i in range(tall):
            for j in range(i + 1 if same else broad):
                at = (i * broad + j) * _TILE * _TILE * _LANES
                _add_tile(flat, at, rows, i * _TILE, columns, j * _TILE, end)
    for i in range(left.size):
        for j in range(i + 1 if same else right.size):
            lanes = sums[i // _TILE, j // _TILE, i % _TILE, j % _TILE]
            out[i, j] = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
            if same:
                out[j, i] = out[i, j]


Vectors = np.ndarray | Sequence[np.ndarray]  # [n, width], or n separate ones


def products(left: Vectors, right: Vectors | None = None) -> np.ndarray:
    """[left, right] float64: the inner products of contiguous float32 vectors; by default with themselves."""
    width = left.shape[-1] if isinstance(left, np.ndarray) else len(left[0])
    rows = _addresses(left, width)
    columns = rows if right is None else _addresses(right, width)
    out = np.empty((len(rows), len(columns)))
    inner_products(rows, columns, width, right is None, out)
    return out


def products_between(vectors: Vectors) -> Callable[[int, int], np.ndarray]:
    """A function that computes the inner products of vectors with each other, from one column to another.

    Calls may run in parallel threads. Splitting a sum changes its last bits.
    """
    width = vectors.shape[-1] if isinstance(vectors, np.ndarray) else len(vectors[0])
    rows = _addresses(vectors, width)

    def between(first: int, last: int) -> np.ndarray:
        if not 0 <= first <= last <= width or not len(vectors):
            raise ValueError(f"no columns {first} to {last} of {len(vectors)} vectors of {width} numbers")
        out, begins = np.empty((len(rows), len(rows))), rows + first * _BYTES
        inner_products(begins, begins, last - first, True, out)
        return out

    return between


@kernel(types.void(given(float64, 2), given(int64, 1), int64, float32[:, ::1]))
def _mixtures(shares: np.ndarray, vectors: np.ndarray, width: int, out: np.ndarray) -> None:
    """See `mixtures`. Four vectors at a time; otherwise most of the time goes into reading the sums."""
    count, n = shares.shape[0], vectors.size
    whole, sums = n - n % 4, np.empty((count, _MIXED))
    for first in range(0, width, _MIXED):
        last = min(first + _MIXED, width)
        sums[:] = 0.0
        for j in range(0, whole, 4):
            r0, r1 = (
                carray(_at(vectors[j]), width)[first:last],
                carray(_at(vectors[j + 1]), width)[first:last],
            )
            r2 = carray(_at(vectors[j + 2]), width)[first:last]
            r3 = carray(_at(vectors[j + 3]), width)[first:last]
            for i in range(count):
                s0, s1, s2, s3 = shares[i, j], shares[i, j + 1], shares[i, j + 2], shares[i, j + 3]
                total = sums[i, : r0.size]
                for p in range(total.size):
                    total[p] = (((total[p] + s0 * r0[p]) + s1 * r1[p]) + s2 * r2[p]) + s3 * r3[p]
        for j in range(whole, n):
            r0 = carray(_at(vectors[j]), width)[first:last]
            for i in range(count):
                s0, total = shares[i, j], sums[i, : r0.size]
                for p in range(total.size):
                    total[p] += s0 * r0[p]
        for i in range(count):
            total, mixed = sums[i], out[i, first:last]
            for p in range(mixed.size):
                mixed[p] = total[p]


def mixtures(shares: np.ndarray, vectors: Vectors, out: np.ndarray | None = None) -> np.ndarray:
    """[m, width] float32: `shares` [m, n] float64 times n contiguous float32 vectors, summed in order; in
    new memory unless `out` is given."""
    width = vectors.shape[-1] if isinstance(vectors, np.ndarray) else len(vectors[0])
    if shares.ndim != 2 or shares.shape[1] != len(vectors):
        raise ValueError(f"{shares.shape} shares of {len(vectors)} vectors")
    out = np.empty((len(shares), width), np.float32) if out is None else out
    if out.shape != (len(shares), width):
        raise ValueError(f"{out.shape} numbers are no room for {len(shares)} mixtures of {width}")
    _mixtures(shares, _addresses(vectors, width), width, out)
    return out


def _addresses(vectors: Vectors, width: int) -> np.ndarray:
    together = isinstance(vectors, np.ndarray)
    pieces: Sequence[np.ndarray] = [vectors] if isinstance(vectors, np.ndarray) else vectors
    for each in pieces:
        if each.dtype != np.float32 or not each.flags.c_contiguous or each.shape[together:] != (width,):
            raise ValueError(f"{each.dtype} {each.shape} among vectors of {width} float32")
    first = np.array([each.__array_interface__["data"][0] for each in pieces], np.int64)
    return first + pieces[0].strides[0] * np.arange(len(vectors)) if together else first
