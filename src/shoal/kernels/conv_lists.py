"""Lists, for `make_gather`, of the gradients of a convolution's outputs that are not 0.

All entries are written, each overwriting the previous one if that was 0: an unpredictable branch costs more
than many writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from shoal.kernels.jit import emitted
from shoal.kernels.vectors import FLOAT, INDEX, Loop, load, spread, start, store, zeros


def make_pass(lanes: int) -> Callable[..., None]:
    """Code for the backward pass of ReLU and dropout, for `lanes` channels.

    passed(y, yo, ys, v, vo, g, go, homes, ho, total, to, n, scale): for p < n, i < lanes
    y[yo + p*ys + i] = scale * g[go + homes[ho + p] + i], or 0 if v[vo + homes[ho + p] + i] <= 0;
    total[to + i] += the sum of these over p.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        y, v, g, homes, total = (start(context, builder, signature, args, at) for at in (0, 3, 5, 7, 9))
        factor, nothing = spread(builder, args[12], lanes), zeros(1, lanes)[0]
        with Loop(builder, args[11], 1, [nothing], [(y, args[2])]) as loop:
            home = builder.load(builder.gep(homes, [loop.at]))
            value = load(builder, builder.gep(v, [home]), lanes)
            slope = builder.fmul(load(builder, builder.gep(g, [home]), lanes), factor)
            slope = builder.select(builder.fcmp_ordered("<=", value, nothing), nothing, slope)
            store(builder, slope, loop.walks[0])
            loop.sums[0] = builder.fadd(loop.sums[0], slope)
        store(builder, builder.fadd(load(builder, total, lanes), loop.sums[0]), total)
        return context.get_dummy_value()

    def passed(
        typing: Any,
        y: Any, yo: Any, ys: Any, v: Any, vo: Any, g: Any, go: Any,
        homes: Any, ho: Any, total: Any, to: Any,
        n: Any, scale: Any,
    ) -> Any:  # fmt: skip
        i = types.int64
        return types.void(y, i, i, v, i, g, i, homes, i, total, i, i, types.float32), emit

    return emitted(passed)


def _not_zero(builder: ir.IRBuilder, factor: ir.Value) -> ir.Value:
    return builder.zext(builder.fcmp_unordered("!=", factor, FLOAT(0)), INDEX)


@emitted
def list_positions(
    typing: Any,
    listed: Any, lo: Any, factors: Any, fo: Any,
    slopes: Any, so: Any, which: Any, wo: Any, step: Any,
    places: Any, po: Any, window: Any, n: Any,
) -> Any:  # fmt: skip
    """For p < n, list slopes[so + p*step] and its place unless it is 0; returns how many are listed.

    The place is places[po + p*window + which[wo + p*step]].
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        into, factors, slopes, which, places = (
            start(context, builder, signature, args, at) for at in (0, 2, 4, 6, 9)
        )
        step, window, n = args[8], args[11], args[12]
        walks = [(slopes, step), (which, step), (places, window)]
        with Loop(builder, n, 1, [INDEX(0)], walks) as loop:
            factor = builder.load(loop.walks[0])
            code = builder.sext(builder.load(loop.walks[1]), INDEX)
            place = builder.load(builder.gep(loop.walks[2], [code]))
            count = loop.sums[0]
            builder.store(factor, builder.gep(factors, [count]))
            builder.store(place, builder.gep(into, [count]))
            loop.sums[0] = builder.add(count, _not_zero(builder, factor))
        return loop.sums[0]

    i = types.int64
    return types.int64(listed, i, factors, i, slopes, i, which, i, i, places, i, i, i), emit


def make_sort(window: int) -> Callable[..., Any]:
    """Code that lists the outputs of one position, separately for each place in its window.

    sort(listed, lo, factors, fo, slopes, so, which, wo, step, n): for c < n, slopes[so + c] goes to the list
    q = which[wo + c], unless it is 0, together with c*step. Lists start n apart; returns the length of each.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        into, factors, slopes, which = (start(context, builder, signature, args, at) for at in (0, 2, 4, 6))
        step, n = args[8], args[9]
        with Loop(builder, n, 1, [builder.mul(n, INDEX(q)) for q in range(window)]) as loop:
            factor = builder.load(builder.gep(slopes, [loop.at]))
            code = builder.load(builder.gep(which, [loop.at]))
            own = [builder.icmp_signed("==", code, code.type(q)) for q in range(window)]
            slot = loop.sums[0]
            for q in range(1, window):
                slot = builder.select(own[q], loop.sums[q], slot)
            builder.store(factor, builder.gep(factors, [slot]))
            builder.store(builder.mul(loop.at, step), builder.gep(into, [slot]))
            more = _not_zero(builder, factor)
            following = builder.add(slot, more)
            for q in range(window):
                loop.sums[q] = builder.select(own[q], following, loop.sums[q])
        lengths = [builder.sub(loop.sums[q], builder.mul(n, INDEX(q))) for q in range(window)]
        return context.make_tuple(builder, signature.return_type, lengths)

    def sort(
        typing: Any,
        listed: Any, lo: Any, factors: Any, fo: Any,
        slopes: Any, so: Any, which: Any, wo: Any, step: Any,
        n: Any,
    ) -> Any:  # fmt: skip
        i = types.int64
        lengths = types.UniTuple(i, window)  # type: ignore[no-untyped-call]
        return lengths(listed, i, factors, i, slopes, i, which, i, i, i), emit

    return emitted(sort)
