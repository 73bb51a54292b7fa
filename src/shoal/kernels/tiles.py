"""The two pieces of vector code that dense layers need, written in LLVM's intermediate representation.

LLVM by itself vectorises only the inner loop, and sums over the mini-batch go through memory. Here a small
tile of sums stays in registers while the loop runs. Vectors have 16 float32 lanes on every machine, each
step is one fused multiply-add, and lanes are added in one fixed tree, so the bits depend neither on the
size of the tile nor on the width of the processor's registers.

All arrays are flat and all rows start at multiples of `LANES`; the caller pads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from shoal.kernels.jit import emitted
from shoal.kernels.vectors import (
    BROAD,
    INDEX,
    Loop,
    fma,
    joined,
    load,
    prefetch,
    shuffle,
    spread,
    start,
    store,
    zeros,
)

LANES = 16
# rows of the tiles: with AVX2, 2 x 3 sums take 12 registers, and 5 rows take 10
TALL, TALLER = (4, 8) if BROAD else (2, 5)
_PART = 16 if BROAD else 8  # lanes of a register


def make_dot(rows: int, batch: int) -> Callable[..., None]:
    """Code for `rows x batch` inner products.

    dot(y, yo, ys, w, wo, ws, x, xo, xs, n):
    y[yo + b*ys + r] += sum_{i < n} w[wo + r*ws + i] * x[xo + b*xs + i]; n is a positive multiple of `LANES`.
    The same columns of the next rows of w are prefetched: the processor does not predict them in short rows.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        y, w, x = (start(context, builder, signature, args, at) for at in (0, 3, 6))
        ys, ws, xs, n = args[2], args[5], args[8], args[9]
        w_rows = [builder.gep(w, [builder.mul(ws, INDEX(r))]) for r in range(rows)]
        x_rows = [builder.gep(x, [builder.mul(xs, INDEX(b))]) for b in range(batch)]
        parts, following = LANES // _PART, builder.mul(ws, INDEX(rows))
        with Loop(builder, n, LANES, zeros(rows * batch * parts, _PART)) as loop:
            for row in w_rows:
                prefetch(builder, builder.gep(row, [builder.add(loop.at, following)]))
            for part in range(parts):  # one after the other, so that few registers are in use
                at = builder.add(loop.at, INDEX(part * _PART))
                w_parts = [load(builder, builder.gep(row, [at]), _PART) for row in w_rows]
                for b, row in enumerate(x_rows):
                    x_part = load(builder, builder.gep(row, [at]), _PART)
                    for r, w_part in enumerate(w_parts):
                        loop.add((b * rows + r) * parts + part, w_part, x_part)
        sums = joined(builder, loop.sums, LANES)
        for b in range(batch):
            place = builder.gep(y, [builder.mul(ys, INDEX(b))])
            total = _add_lanes(builder, sums[b * rows : (b + 1) * rows])
            store(builder, builder.fadd(load(builder, place, rows), total), place)
        return context.get_dummy_value()

    def dot(
        typing: Any, y: Any, yo: Any, ys: Any, w: Any, wo: Any, ws: Any, x: Any, xo: Any, xs: Any, n: Any
    ) -> Any:
        index = types.int64
        return types.void(y, index, index, w, index, index, x, index, index, index), emit

    return emitted(dot)


def make_outer(rows: int, shifted: bool = False) -> Callable[..., None]:
    """Code for `LANES` columns of `rows` sums of outer products.

    outer(y, yo, ys, a, ao, ar, ak, x, xo, xs, n, scale, ahead):
    y[yo + r*ys + i] += scale * sum_{k < n} a[ao + r*ar + k*ak] * x[xo + k*xs + i] for i < LANES; n > 0.
    The numbers `ahead` of each of these x are prefetched.

    With `shifted`, s follows as the last argument, in y's layout: the sums begin with s[yo + r*ys + i].
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        y, a, x = (start(context, builder, signature, args, at) for at in (0, 3, 7))
        ys, ar, ak, (xs, n, scale, ahead) = args[2], args[5], args[6], args[9:13]
        a_rows = [builder.gep(a, [builder.mul(ar, INDEX(r))]) for r in range(rows)]
        sums = zeros(rows, LANES)
        if shifted:
            array = context.make_array(signature.args[13])(context, builder, args[13])
            s = builder.gep(array.data, [args[1]])
            sums = [load(builder, builder.gep(s, [builder.mul(ys, INDEX(r))]), LANES) for r in range(rows)]
        with Loop(builder, n, 1, sums, [(x, xs)]) as loop:
            prefetch(builder, builder.gep(loop.walks[0], [ahead]))
            x_part = load(builder, loop.walks[0], LANES)
            step = builder.mul(loop.at, ak)
            for r, row in enumerate(a_rows):
                loop.add(r, spread(builder, builder.load(builder.gep(row, [step])), LANES), x_part)
        factor = spread(builder, scale, LANES)
        for r, total in enumerate(loop.sums):
            place = builder.gep(y, [builder.mul(ys, INDEX(r))])
            store(builder, fma(builder, factor, total, load(builder, place, LANES)), place)
        return context.get_dummy_value()

    def outer(
        typing: Any,
        y: Any, yo: Any, ys: Any,
        a: Any, ao: Any, ar: Any, ak: Any,
        x: Any, xo: Any, xs: Any,
        n: Any, scale: Any, ahead: Any,
    ) -> Any:  # fmt: skip
        index = types.int64
        return types.void(
            y, index, index, a, index, index, index, x, index, index, index, types.float32, index
        ), emit

    def shifted_outer(
        typing: Any,
        y: Any, yo: Any, ys: Any,
        a: Any, ao: Any, ar: Any, ak: Any,
        x: Any, xo: Any, xs: Any,
        n: Any, scale: Any, ahead: Any, s: Any,
    ) -> Any:  # fmt: skip
        plain, _ = outer(typing, y, yo, ys, a, ao, ar, ak, x, xo, xs, n, scale, ahead)
        return types.void(*plain.args, s), emit

    return emitted(shifted_outer if shifted else outer)


def _add_lanes(builder: ir.IRBuilder, vectors: list[ir.Value]) -> ir.Value:
    """One sum for each of 1, 2, 4, ... vectors: lane i with i + 8, then with i + 4, i + 2, i + 1.

    Vectors are folded in pairs, which halves the work compared to folding each by itself.
    """
    width = LANES  # lanes that belong to one sum
    while width > 1:
        if len(vectors) == 1:
            pairs, lanes = [(vectors[0], vectors[0])], int(vectors[0].type.count)
        else:
            pairs, lanes = list(zip(vectors[::2], vectors[1::2])), 2 * LANES
        low = [lane for lane in range(lanes) if lane % width < width // 2]
        high = [lane + width // 2 for lane in low]
        vectors = [builder.fadd(shuffle(builder, a, b, low), shuffle(builder, a, b, high)) for a, b in pairs]
        width //= 2
    return vectors[0]
