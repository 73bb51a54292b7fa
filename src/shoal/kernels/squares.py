"""Sums of squares in float64, as sixteen partial sums of every sixteenth number, which stay in registers.

numba would write the partial sums to memory after every sixteen numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from shoal.kernels.jit import bare, emitted
from shoal.kernels.vectors import Loop, load, start, store

SUMS = 16


@emitted
def _squares(typing: Any, sums: Any, at: Any, values: Any, first: Any, n: Any) -> Any:
    """sums[at + i] += the sum of the squares of every sixteenth of n values, n > 0 a multiple of sixteen."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        into, source = (start(context, builder, signature, args, place) for place in (0, 2))
        kind = ir.VectorType(ir.DoubleType(), SUMS)
        known = builder.load(builder.bitcast(into, kind.as_pointer()), align=8)
        with Loop(builder, args[4], SUMS, [known]) as loop:
            part = builder.fpext(load(builder, builder.gep(source, [loop.at]), SUMS), kind)
            loop.sums[0] = builder.fadd(loop.sums[0], builder.fmul(part, part))
        store(builder, loop.sums[0], into)
        return context.get_dummy_value()

    return types.void(sums, types.int64, values, types.int64, types.int64), emit


@bare
def add_squares(sums: np.ndarray, values: np.ndarray) -> None:
    """Add the squares of some numbers to the sums [16]."""
    whole = values.size - values.size % SUMS
    if whole:
        _squares(sums, 0, values, 0, whole)
    for p in range(whole, values.size):
        value = np.float64(values[p])
        sums[p - whole] += value * value
