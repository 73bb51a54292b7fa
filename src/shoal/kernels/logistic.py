"""The summed loss of many logistic models at once: two-class cross-entropy, stable or as its author wrote it.

Almost all of the time goes into exponentials. They are a polynomial here, so that vector code computes
them, and the logarithms of hundreds of samples are one logarithm of a product.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import boolean, float64, int64, types

from shoal.kernels.jit import emitted, given, inner, kernel

SHIFT = 1e-3  # what the paper's author adds to a probability before he takes its logarithm

_TOGETHER = 64  # samples whose product is taken; each factor is in [1, 2], or in [1e-3, 1.001]
_LOWEST = -708.0  # below, an exponential is smaller than any normal number: 0 here
_ROUNDER = 1.5 * 2.0**52  # added to a number, it leaves the nearest whole number in the last bits
_LOG2_E, _LN2_HIGH, _LN2_LOW = 1 / math.log(2), 6.93147180369123816490e-01, 1.90821492927058770002e-10
_C2, _C3, _C4, _C5, _C6, _C7, _C8, _C9, _C10, _C11, _C12, _C13 = (1 / math.factorial(n) for n in range(2, 14))


@emitted
def _power(typing: Any, rounded: Any) -> Any:
    """2^k, where k is the whole number that adding `_ROUNDER` left in the last bits."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        bits = builder.shl(builder.bitcast(args[0], word), word(52))
        return builder.bitcast(builder.add(bits, word(1023 << 52)), ir.DoubleType())

    return float64(float64), emit


@inner
def _exp(x: float) -> float:
    """e^x for x <= 0, to the last bit or two; nan stays nan."""
    low = x < _LOWEST
    x = _LOWEST if low else x
    rounded = x * _LOG2_E + _ROUNDER
    k = rounded - _ROUNDER
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW  # |r| <= ln(2) / 2, where the series below is exact
    p = _C13
    p = p * r + _C12
    p = p * r + _C11
    p = p * r + _C10
    p = p * r + _C9
    p = p * r + _C8
    p = p * r + _C7
    p = p * r + _C6
    p = p * r + _C5
    p = p * r + _C4
    p = p * r + _C3
    p = p * r + _C2
    p = (p * r) * r + r
    return 0.0 if low else (1.0 + p) * _power(rounded)


@inner
def _stable(z: np.ndarray, losses: np.ndarray, product: np.ndarray) -> None:
    """log(1 + e^z) = max(z, 0) + log(1 + e^-|z|): the first part goes to the losses.

    `product` is that of the factors 1 + e^-|z|, less 1: so that small exponentials keep their digits.
    """
    for m in range(z.size):
        product[m] += _exp(-abs(z[m])) * (1.0 + product[m])
        losses[m] += 0.0 if z[m] <= 0.0 else z[m]  # in this order nan stays nan


@inner
def _shifted(z: np.ndarray, product: np.ndarray) -> None:
    """`product` is that of the factors 1 / (1 + e^z) + SHIFT."""
    for m in range(z.size):
        e = _exp(-abs(z[m]))
        product[m] *= (e if z[m] > 0.0 else 1.0) / (1.0 + e) + SHIFT


@kernel(types.void(float64[:, ::1], given(float64, 2), given(int64, 1), boolean, float64[:, ::1]))
def add_entropies(
    outputs: np.ndarray, bias: np.ndarray, labels: np.ndarray, shifted: bool, losses: np.ndarray
) -> None:
    """Add to losses [problems, particles] those of the samples.

    outputs [samples, problems * particles] lack the bias [problems, particles], and are used up. A sample
    is of class 1 in the problem of its label and of class 0 in all others; class 1 costs at z what class 0
    costs at -z.
    """
    particles = bias.shape[1]
    bias, losses = bias.reshape(-1), losses.reshape(-1)
    product = np.empty(losses.size)
    for begin in range(0, len(outputs), _TOGETHER):
        product[:] = 1.0 if shifted else 0.0
        for i in range(begin, min(begin + _TOGETHER, len(outputs))):
            z, own = outputs[i], labels[i] * particles
            for m in range(z.size):
                z[m] += bias[m]
            for m in range(own, own + particles):
                z[m] = -z[m]
            if shifted:
                _shifted(z, product)
            else:
                _stable(z, losses, product)
        for m in range(losses.size):
            losses[m] += -math.log(product[m]) if shifted else math.log1p(product[m])
