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
from shoal.kernels.vectors import INDEX, Loop, first_lanes, fma, spread

_BYTES = 64  # of a vector


def _make_tile(vectors: int) -> Callable[..., None]:
    """Code for some numbers of a sum.

    tile(total, at, left, factors, rows): total[at + i] -= the sum of factors[k] * rows[k, at + i], for the i
    that fill so many vectors; and that are less than `left`, if it is one vector.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        total, factors, rows = (
            context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 3, 4)
        )
        kind, from_kind = (context.get_value_type(signature.args[i].dtype) for i in (0, 4))
        lanes = _BYTES // signature.args[0].dtype.bitwidth * 8
        mask = first_lanes(builder, args[2], lanes) if vectors == 1 else None
        place = builder.gep(total.data, [args[1]])
        begin = [_loaded(builder, place, v * lanes, lanes, mask) for v in range(vectors)]
        walks = [
            (builder.gep(rows.data, [args[1]]), _apart(builder, rows, signature.args[4])),
            (factors.data, _apart(builder, factors, signature.args[3])),
        ]
        count = _first(builder, factors.shape)
        with Loop(builder, count, 1, begin, walks) as loop:
            row, factor = loop.walks
            times = spread(builder, builder.fneg(_cast(builder, builder.load(factor), kind)), lanes)
            for v in range(vectors):
                part = _loaded(builder, row, v * lanes, lanes, mask)
                wide = part if kind == from_kind else builder.fpext(part, ir.VectorType(kind, lanes))
                loop.sums[v] = fma(builder, times, wide, loop.sums[v])
        for v, value in enumerate(loop.sums):
            _keep(builder, value, place, v * lanes, mask)
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


def _vector_at(builder: ir.IRBuilder, place: ir.Value, offset: int, lanes: int) -> ir.Value:
    kind = ir.VectorType(place.type.pointee, lanes)
    return builder.bitcast(builder.gep(place, [INDEX(offset)]), kind.as_pointer())


def _intrinsic(builder: ir.IRBuilder, name: str, kind: ir.FunctionType) -> ir.Function:
    module = builder.module
    return module.globals.get(name) or ir.Function(module, kind, name)


def _named(kind: ir.VectorType) -> str:
    return f"v{kind.count}f{64 if kind.element == ir.DoubleType() else 32}"


def _loaded(
    builder: ir.IRBuilder, place: ir.Value, offset: int, lanes: int, mask: ir.Value | None
) -> ir.Value:
    pointer = _vector_at(builder, place, offset, lanes)
    kind, number = pointer.type.pointee, ir.IntType(32)
    align = 8 if kind.element == ir.DoubleType() else 4
    if mask is None:
        return builder.load(pointer, align=align)
    types_ = [pointer.type, number, mask.type, kind]
    function = _intrinsic(
        builder, f"llvm.masked.load.{_named(kind)}.p0{_named(kind)}", ir.FunctionType(kind, types_)
    )
    return builder.call(function, [pointer, number(align), mask, ir.Constant(kind, None)])


def _keep(
    builder: ir.IRBuilder, value: ir.Value, place: ir.Value, offset: int, mask: ir.Value | None
) -> None:
    kind, number = value.type, ir.IntType(32)
    pointer, align = (
        _vector_at(builder, place, offset, kind.count),
        8 if kind.element == ir.DoubleType() else 4,
    )
    if mask is None:
        builder.store(value, pointer, align=align)
        return
    types_ = [kind, pointer.type, number, mask.type]
    function = _intrinsic(
        builder,
        f"llvm.masked.store.{_named(kind)}.p0{_named(kind)}",
        ir.FunctionType(ir.VoidType(), types_),
    )
    builder.call(function, [value, pointer, number(align), mask])


_eight, _four, _two, _last = (_make_tile(vectors) for vectors in (8, 4, 2, 1))


@inner
def subtract_rows(total: np.ndarray, factors: np.ndarray, rows: np.ndarray) -> None:
    """total -= factors[k] * rows[k], one after another, for as many rows as there are factors.

    The total and each row are contiguous.
    """
    lanes, at = _BYTES // total.itemsize, 0
    if factors.size == 0:
        return
    while total.size - at >= 8 * lanes:
        _eight(total, at, 0, factors, rows)
        at += 8 * lanes
    if total.size - at >= 4 * lanes:
        _four(total, at, 0, factors, rows)
        at += 4 * lanes
    if total.size - at >= 2 * lanes:
        _two(total, at, 0, factors, rows)
        at += 2 * lanes
    while at < total.size:
        _last(total, at, total.size - at, factors, rows)
        at += lanes
