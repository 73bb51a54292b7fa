"""The vector code that convolutions need.

- `make_window` is for the forward pass: vectors lie along output channels, and a tile covers several output
  positions.
- `make_strip` is for the forward pass with too few channels for a vector: vectors lie along a line of the
  image.
- `make_gather` is for the backward pass: it adds up multiples of pieces of an array, each from its own place.
  After ReLU and pooling most gradients are 0, and only the others are in its list.

Every lane is a separate sum, computed by one fused multiply-add after another, so its bits do not depend on
the size of a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from llvmlite import ir
from numba import types

from shoal.kernels.jit import emitted
from shoal.kernels.vectors import (
    INDEX,
    Loop,
    first_lanes,
    load,
    shuffle,
    spread,
    start,
    store,
    turned,
    zeros,
)

_WIDTH = 16  # lanes of a vector
_MOST = 8  # output channels of a strip


def make_window(rows: int, lanes: int) -> Callable[..., None]:
    """Code for a convolution at `rows` positions, for `lanes` output channels.

    window(z, zo, zs, a, ao, places, po, w, wo, ws, lines, line, n): for r < rows, i < lanes
    z[zo + r*zs + i] = the sum over j < lines, k < n of
    a[ao + places[po + r] + j*line + k] * w[wo + (j*n + k)*ws + i].
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        z, a, places, w = (start(context, builder, signature, args, at) for at in (0, 3, 5, 7))
        zs, ws, lines, line, n = args[2], args[9], args[10], args[11], args[12]
        offsets = [builder.load(builder.gep(places, [INDEX(r)])) for r in range(rows)]
        positions = [builder.gep(a, [offset]) for offset in offsets]
        walks = [(w, builder.mul(n, ws)), *((position, line) for position in positions)]
        width = min(lanes, _WIDTH)
        parts = [INDEX(i) for i in range(0, lanes, width)]
        with Loop(builder, lines, 1, zeros(rows * len(parts), width), walks) as outer:
            weights, *here = outer.walks
            with Loop(builder, n, 1, outer.sums, [(weights, ws)]) as inner:
                own = [load(builder, builder.gep(inner.walks[0], [i]), width) for i in parts]
                for r, place in enumerate(here):
                    seen = spread(builder, builder.load(builder.gep(place, [inner.at])), width)
                    for which, part in enumerate(own, r * len(parts)):
                        inner.add(which, seen, part)
            outer.sums = inner.sums
        for (r, i), total in zip(product(range(rows), parts), outer.sums, strict=True):
            store(builder, total, builder.gep(z, [builder.add(builder.mul(zs, INDEX(r)), i)]))
        return context.get_dummy_value()

    def window(
        typing: Any,
        z: Any, zo: Any, zs: Any,
        a: Any, ao: Any, places: Any, po: Any,
        w: Any, wo: Any, ws: Any,
        lines: Any, line: Any, n: Any,
    ) -> Any:  # fmt: skip
        i = types.int64
        return types.void(z, i, i, a, i, places, i, w, i, i, i, i, i), emit

    return emitted(window)


def make_strip(length: int, channels: int) -> Callable[..., None]:
    """Code for a convolution at `length` positions of a line (8 or 16) and at those below them, for up to 8
    output channels.

    strip(z, zo, zs, a, ao, plane, line, w, wo, ws, inputs, lines, columns): for r < 2, i < length,
    c < channels
    z[zo + (i//2*4 + r*2 + i%2)*zs + c] = the sum over d < inputs, j < lines, k < columns of
    a[ao + d*plane + (j + r)*line + i + k] * w[wo + ((j*columns + k)*inputs + d)*ws + c].
    So each window of 2 x 2 positions is contiguous. For channels <= c < 8, 0 is written.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        z, a, w = (start(context, builder, signature, args, at) for at in (0, 3, 7))
        zs, plane, line, (ws, inputs, lines, columns) = args[2], args[5], args[6], args[9:13]
        pixel = builder.mul(inputs, ws)  # the weights of a pixel
        row = builder.mul(columns, pixel)
        with Loop(builder, inputs, 1, zeros(2 * channels, length), [(a, plane), (w, ws)]) as each:
            down = [(each.walks[0], line), (each.walks[1], row)]
            with Loop(builder, lines, 1, each.sums, down) as outer:
                along = [(outer.walks[0], INDEX(1)), (outer.walks[1], pixel)]
                with Loop(builder, columns, 1, outer.sums, along) as inner:
                    here, weights = inner.walks
                    parts = [load(builder, place, length) for place in (here, builder.gep(here, [line]))]
                    for c in range(channels):
                        weight = spread(builder, builder.load(builder.gep(weights, [INDEX(c)])), length)
                        for r, part in enumerate(parts):
                            inner.add(r * channels + c, weight, part)
                outer.sums = inner.sums
            each.sums = outer.sums
        for r in range(2):
            sums = [*each.sums[r * channels : (r + 1) * channels], *zeros(_MOST - channels, length)]
            for first in range(0, length, _MOST):
                some = range(first, first + _MOST)
                square = [shuffle(builder, total, total, list(some)) for total in sums]
                for i, position in zip(some, turned(builder, square), strict=True):
                    place = builder.mul(zs, INDEX(i // 2 * 4 + r * 2 + i % 2))
                    store(builder, position, builder.gep(z, [place]))
        return context.get_dummy_value()

    def strip(
        typing: Any,
        z: Any, zo: Any, zs: Any,
        a: Any, ao: Any, plane: Any, line: Any,
        w: Any, wo: Any, ws: Any,
        inputs: Any, lines: Any, columns: Any,
    ) -> Any:  # fmt: skip
        i = types.int64
        return types.void(z, i, i, a, i, i, i, w, i, i, i, i, i), emit

    return emitted(strip)


def make_gather(rows: int, lanes: int) -> Callable[..., None]:
    """Code for a sum of multiples of pieces of `rows x lanes` numbers.

    gather(y, yo, ys, x, xo, xs, places, po, factors, fo, n): for r < rows, i < lanes, and n > 0
    y[yo + r*ys + i] += sum_{e < n} factors[fo + e] * x[xo + places[po + e] + r*xs + i].
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        y, x, places, factors = (start(context, builder, signature, args, at) for at in (0, 3, 6, 8))
        ys, xs, n = args[2], args[5], args[10]
        width = min(lanes, _WIDTH)
        pieces = [(r, i) for r in range(rows) for i in range(0, lanes, width)]
        with Loop(builder, n, 1, zeros(len(pieces), width)) as loop:
            here = builder.gep(x, [builder.load(builder.gep(places, [loop.at]))])
            factor = spread(builder, builder.load(builder.gep(factors, [loop.at])), width)
            for which, (r, i) in enumerate(pieces):
                place = builder.gep(here, [builder.add(builder.mul(xs, INDEX(r)), INDEX(i))])
                loop.add(which, factor, load(builder, place, width))
        for (r, i), total in zip(pieces, loop.sums, strict=True):
            place = builder.gep(y, [builder.add(builder.mul(ys, INDEX(r)), INDEX(i))])
            store(builder, builder.fadd(load(builder, place, width), total), place)
        return context.get_dummy_value()

    def gather(
        typing: Any,
        y: Any, yo: Any, ys: Any,
        x: Any, xo: Any, xs: Any,
        places: Any, po: Any, factors: Any, fo: Any,
        n: Any,
    ) -> Any:  # fmt: skip
        i = types.int64
        return types.void(y, i, i, x, i, i, places, i, factors, i, i), emit

    return emitted(gather)


def make_pool(positions: int, lanes: int) -> Callable[..., None]:
    """Code for bias, ReLU and the maximum over some positions, for `lanes` channels.

    pool(y, yo, homes, ho, which, wo, z, zo, zs, bias, bo, seen, so, own, n): for p < n, i < lanes
    y[yo + homes[ho + p] + i] = relu(bias[bo + i] + max_q z[zo + (p*positions + q)*zs + i]), or 0 for
    i >= own; which[wo + p*zs + i] = the first q of the maximum; seen[so + i] += the sum of these y. As in
    torch, nan counts as larger than any number and stays nan.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        y, homes, which, z, bias, seen = (
            start(context, builder, signature, args, at) for at in (0, 2, 4, 6, 9, 11)
        )
        zs, own, n = args[8], args[13], args[14]
        codes, nothing = ir.VectorType(ir.IntType(32), lanes), zeros(1, lanes)[0]
        bias, inside = load(builder, bias, lanes), first_lanes(builder, own, lanes)
        walks = [(z, builder.mul(zs, INDEX(positions))), (which, zs)]
        with Loop(builder, n, 1, [load(builder, seen, lanes)], walks) as loop:
            best, code = load(builder, loop.walks[0], lanes), ir.Constant(codes, [0] * lanes)
            for q in range(1, positions):
                place = builder.gep(loop.walks[0], [builder.mul(zs, INDEX(q))])
                value = load(builder, place, lanes)
                strange = builder.fcmp_unordered("uno", value, value)
                better = builder.or_(builder.fcmp_ordered(">", value, best), strange)
                best = builder.select(better, value, best)
                code = builder.select(better, ir.Constant(codes, [q] * lanes), code)
            total = builder.fadd(best, bias)
            result = builder.select(builder.fcmp_ordered("<=", total, nothing), nothing, total)
            result = builder.select(inside, result, nothing)
            home = builder.load(builder.gep(homes, [loop.at]))
            store(builder, result, builder.gep(y, [home]))
            store(builder, code, loop.walks[1])
            loop.sums[0] = builder.fadd(loop.sums[0], result)
        store(builder, loop.sums[0], seen)
        return context.get_dummy_value()

    def pool(
        typing: Any,
        y: Any, yo: Any, homes: Any, ho: Any, which: Any, wo: Any,
        z: Any, zo: Any, zs: Any,
        bias: Any, bo: Any, seen: Any, so: Any,
        own: Any, n: Any,
    ) -> Any:  # fmt: skip
        i = types.int64
        return types.void(y, i, homes, i, which, i, z, i, i, bias, i, seen, i, i, i), emit

    return emitted(pool)
