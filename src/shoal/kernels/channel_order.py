"""Vector code that moves data: from channels first to channels last and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from shoal.kernels.jit import Flag, Index, apart, bare, emitted
from shoal.kernels.layout import copy
from shoal.kernels.vectors import FLOAT, INDEX, Loop, fma, load, shuffle, start, store, turned, zeros

_SIDE = 8  # of a square block
_LONG = 16
_ZERO = np.float32(0)


@emitted
def _turn_block(typing: Any, y: Any, yo: Any, ys: Any, x: Any, xo: Any, xs: Any) -> Any:
    """y[yo + j*ys + i] = x[xo + i*xs + j] for i, j < 8."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        into, source = (start(context, builder, signature, args, at) for at in (0, 3))
        places = [builder.gep(source, [builder.mul(args[5], INDEX(i))]) for i in range(_SIDE)]
        rows = [load(builder, place, _SIDE) for place in places]
        for j, row in enumerate(turned(builder, rows)):
            store(builder, row, builder.gep(into, [builder.mul(args[2], INDEX(j))]))
        return context.get_dummy_value()

    i = types.int64
    return types.void(y, i, i, x, i, i), emit


@bare
def turn(y: np.ndarray, yo: Index, x: np.ndarray, xo: Index, rows: Index, columns: Index) -> None:
    """y[yo + j*rows + i] = x[xo + i*columns + j] for i < rows, j < columns."""
    apart()
    whole, broad = rows // _SIDE * _SIDE, columns // _SIDE * _SIDE
    for i in range(0, whole, _SIDE):
        for j in range(0, broad, _SIDE):
            _turn_block(y, yo + j * rows + i, rows, x, xo + i * columns + j, columns)
    for i in range(rows):
        for j in range(broad if i < whole else 0, columns):
            y[yo + j * rows + i] = x[xo + i * columns + j]


@emitted
def _weave_three(typing: Any, y: Any, yo: Any, x: Any, xo: Any, xs: Any, n: Any) -> Any:
    """y[yo + 3*i + c] = x[xo + c*xs + i] for c < 3, i < n, a positive multiple of 8."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        into, source = (start(context, builder, signature, args, at) for at in (0, 2))
        planes = [builder.gep(source, [builder.mul(args[4], INDEX(c))]) for c in range(3)]
        with Loop(builder, args[5], _SIDE, [], [(into, INDEX(3 * _SIDE))]) as loop:
            a, b, c = (load(builder, builder.gep(plane, [loop.at]), _SIDE) for plane in planes)
            pairs = shuffle(builder, a, b, list(range(2 * _SIDE)))
            rest = shuffle(builder, c, c, list(range(2 * _SIDE)))
            woven = [i // 3 + (0, _SIDE, 2 * _SIDE)[i % 3] for i in range(3 * _SIDE)]
            for part in range(3):
                lanes = woven[part * _SIDE : (part + 1) * _SIDE]
                place = builder.gep(loop.walks[0], [INDEX(part * _SIDE)])
                store(builder, shuffle(builder, pairs, rest, lanes), place)
        return context.get_dummy_value()

    i = types.int64
    return types.void(y, i, x, i, i, i), emit


@bare
def weave(y: np.ndarray, yo: Index, x: np.ndarray, xo: Index, xs: Index, channels: Index, n: Index) -> None:
    """y[yo + i*channels + c] = x[xo + c*xs + i] for c < channels, i < n."""
    done: Index = np.int64(0)
    if channels == 1:
        copy(y, yo, x, xo, n)
        return
    elif channels == 3 and n >= _SIDE:
        done = n // _SIDE * _SIDE
        _weave_three(y, yo, x, xo, xs, done)
    for c in range(channels):
        for i in range(done, n):
            y[yo + i * channels + c] = x[xo + c * xs + i]


@emitted
def _nothing(typing: Any, x: Any, xo: Any, n: Any) -> Any:
    """The sum of 0 * x[xo + i] for i < n, a positive multiple of 16: 0, or nan."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        source, none = start(context, builder, signature, args, 0), zeros(1, _LONG)[0]
        with Loop(builder, args[2], _LONG, [none]) as loop:
            loop.sums[0] = fma(
                builder, load(builder, builder.gep(source, [loop.at]), _LONG), none, loop.sums[0]
            )
        total: ir.Value = FLOAT(0)
        for lane in range(_LONG):
            total = builder.fadd(total, builder.extract_element(loop.sums[0], ir.IntType(32)(lane)))
        return total

    i = types.int64
    return types.float32(x, i, i), emit


@bare
def all_finite(x: np.ndarray) -> Flag:
    """Whether no number is infinite or nan."""
    whole = x.size // _LONG * _LONG
    total = _nothing(x, np.int64(0), whole) if whole else _ZERO
    for i in range(whole, x.size):
        total += x[i] * _ZERO
    return bool(total == _ZERO)
