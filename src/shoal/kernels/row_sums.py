"""Sums of rows, each times a factor: most of what small decompositions compute.

A tile of the sum stays in registers while all rows go by. In plain loops it is read and written once for
every few rows, and what is left behind whole vectors is computed number by number. Products are added in the
order of the rows, each rounded once, so no bit depends on the tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from shoal.kernels.jit import emitted, inner
from shoal.kernels.vectors import BROAD, INDEX, Loop, first_lanes, load, spread, store

_BYTES = 64  # of a vector
_MOST = 8 if BROAD else 4  # vectors of a tile, which are registers of AVX-512, or pairs of them


def _make_tile(vectors: int) -> Callable[..., None]:
    """Code for some numbers of a sum.

    tile(total, at, left, factors, rows): total[at + i] -= the sum of factors[k] * rows[k, at + i], for the i
    that fill so many vectors; and that are less than `left`, if it is one vector.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        total, factors, rows = (
            context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 3, 4)
        )
        kind = context.get_value_type(signature.args[0].dtype)
        lanes = _BYTES // signature.args[0].dtype.bitwidth * 8
        mask = first_lanes(builder, args[2], lanes) if vectors == 1 else None

        def vector(first: ir.Value, v: int) -> ir.Value:
            part = load(builder, builder.gep(first, [INDEX(v * lanes)]), lanes, mask)
            return part if part.type.element == kind else builder.fpext(part, ir.VectorType(kind, lanes))

        place = builder.gep(total.data, [args[1]])
        walks = [
            (builder.gep(rows.data, [args[1]]), _apart(builder, rows, signature.args[4])),
            (factors.data, _apart(builder, factors, signature.args[3])),
        ]
        count, begin = _first(builder, factors.shape), [vector(place, v) for v in range(vectors)]
        with Loop(builder, count, 1, begin, walks) as loop:
            row, factor = loop.walks
            times = spread(builder, builder.fneg(_cast(builder, builder.load(factor), kind)), lanes)
            for v in range(vectors):
                loop.add(v, times, vector(row, v))
        for v, value in enumerate(loop.sums):
            store(builder, value, builder.gep(place, [INDEX(v * lanes)]), mask)
        return context.get_dummy_value()

    def tile(typing: Any, total: Any, at: Any, left: Any, factors: Any, rows: Any) -> Any:
        return types.void(total, types.int64, types.int64, factors, rows), emit

    return emitted(tile)


def _apart(builder: ir.IRBuilder, array: Any, kind: Any) -> ir.Value:
    """How many numbers lie between two rows."""
    return builder.sdiv(_first(builder, array.strides), INDEX(kind.dtype.bitwidth // 8))


def _first(builder: ir.IRBuilder, numbers: ir.Value) -> ir.Value:
    return builder.extract_value(numbers, 0)


def _cast(builder: ir.IRBuilder, value: ir.Value, kind: ir.Type) -> ir.Value:
    if value.type == kind:
        return value
    return builder.fpext(value, kind) if kind == ir.DoubleType() else builder.fptrunc(value, kind)


_most, _four, _two, _last = (_make_tile(vectors) for vectors in (_MOST, 4, 2, 1))


@inner
def subtract_rows(total: np.ndarray, factors: np.ndarray, rows: np.ndarray) -> None:
    """total -= factors[k] * rows[k], one after another, for as many rows as there are factors.

    The total and each row are contiguous.
    """
    lanes, at = _BYTES // total.itemsize, 0
    if factors.size == 0:
        return
    while total.size - at >= _MOST * lanes:
        _most(total, at, 0, factors, rows)
        at += _MOST * lanes
    if total.size - at >= 4 * lanes:
        _four(total, at, 0, factors, rows)
        at += 4 * lanes
    if total.size - at >= 2 * lanes:
        _two(total, at, 0, factors, rows)
        at += 2 * lanes
    while at < total.size:
        _last(total, at, total.size - at, factors, rows)
        at += lanes
