"""The matrix products of dense layers, in pieces that fit into the nearest cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shoal.kernels.jit import Index, Real, apart, bare
from shoal.kernels.layout import clear
from shoal.kernels.tiles import LANES, TALL, TALLER, make_dot, make_outer

CHUNK = 64  # samples processed together: their values stay in the outer cache, their pages in the TLB
_WIDE = 800  # numbers of each sample that are multiplied by all rows before the next ones


def _dot_band(rows: int) -> Callable[..., None]:
    three, two, one = (make_dot(rows, batch) for batch in (3, 2, 1))

    @bare
    def dots(
        y: np.ndarray, yo: Index, ys: Index,
        w: np.ndarray, wo: Index, ws: Index,
        x: np.ndarray, xo: Index,
        batch: Index, n: Index,
    ) -> None:  # fmt: skip
        b = 0
        while batch - b == 3 or batch - b > 4:  # four are two pairs
            three(y, yo + b * ys, ys, w, wo, ws, x, xo + b * ws, ws, n)
            b += 3
        while batch - b >= 2:
            two(y, yo + b * ys, ys, w, wo, ws, x, xo + b * ws, ws, n)
            b += 2
        if b < batch:
            one(y, yo + b * ys, ys, w, wo, ws, x, xo + b * ws, ws, n)

    return dots


def _outer_band(rows: int) -> Callable[..., None]:
    tile, shifted = make_outer(rows), make_outer(rows, shifted=True)

    @bare
    def outers(
        y: np.ndarray, yo: Index, columns: Index, wide: Index,
        a: np.ndarray, ao: Index, ar: Index, ak: Index,
        x: np.ndarray, xo: Index,
        n: Index, scale: Real, shift: np.ndarray,
    ) -> None:  # fmt: skip
        if shift.size:
            for i in range(0, columns, LANES):
                shifted(y, yo + i, wide, a, ao, ar, ak, x, xo + i, wide, n, scale, columns, shift)
            return
        for i in range(0, columns, LANES):
            tile(y, yo + i, wide, a, ao, ar, ak, x, xo + i, wide, n, scale, columns)

    return outers


_dots_tall, _dots_one = _dot_band(TALL), _dot_band(1)
_outers_tall, _outers_two, _outers_one = _outer_band(TALLER), _outer_band(2), _outer_band(1)


@bare
def dots(
    y: np.ndarray, yo: Index, ys: Index,
    out: Index,
    w: np.ndarray, wo: Index, ws: Index,
    x: np.ndarray, xo: Index,
    batch: Index,
) -> None:  # fmt: skip
    """y[b, o] = sum_i w[o, i] * x[b, i]."""
    apart()
    clear(y, yo, batch * ys)
    for k in range(0, ws, _WIDE):
        n, o = min(_WIDE, ws - k), 0
        while o + TALL <= out:
            _dots_tall(y, yo + o, ys, w, wo + o * ws + k, ws, x, xo + k, batch, n)
            o += TALL
        while o < out:
            _dots_one(y, yo + o, ys, w, wo + o * ws + k, ws, x, xo + k, batch, n)
            o += 1


@bare
def accumulate(
    y: np.ndarray, yo: Index, rows: Index, columns: Index, wide: Index,
    a: np.ndarray, ao: Index, ar: Index, ak: Index,
    x: np.ndarray, xo: Index,
    n: Index, scale: Real, shift: np.ndarray,
) -> None:  # fmt: skip
    """y[r, i] += scale * (s[r, i] + sum_{k < n} a[r, k] * x[k, i]) for i < columns, in rows of `wide`.

    The shift s has the layout of y; it counts as 0 if it is empty.
    """
    apart()
    for k in range(0, n, CHUNK):
        at, xk, count, r = ao + k * ak, xo + k * wide, min(CHUNK, n - k), 0
        more = shift if k == 0 else shift[:0]
        while r + TALLER <= rows:
            _outers_tall(y, yo + r * wide, columns, wide, a, at + r * ar, ar, ak, x, xk, count, scale, more)
            r += TALLER
        while r + 2 <= rows:
            _outers_two(y, yo + r * wide, columns, wide, a, at + r * ar, ar, ak, x, xk, count, scale, more)
            r += 2
        if r < rows:
            _outers_one(y, yo + r * wide, columns, wide, a, at + r * ar, ar, ak, x, xk, count, scale, more)
