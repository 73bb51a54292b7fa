"""The summed loss of many logistic models: two-class cross entropy, stable or in the form FSI's author uses.

Most of the time goes into the products of samples and models. Samples are processed in groups of four, and
features that are 0 in all four, as in most of a picture, are skipped: this is twice as fast as a dense
product here. Exponentials are computed by polynomials, so that they can be vectorised, and the logarithms of
64 samples by one logarithm of a product.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import boolean, float64, int64, types

from shoal.kernels.jit import Index, emitted, given, inner, kernel

SHIFT = 1e-3  # added to a probability before its logarithm, as in the author's code

_GROUP = 4  # samples that are multiplied together
_TOGETHER = 64  # samples per product; each factor is in [1, 2], or in [1e-3, 1.001]
_LOWEST = -708.0  # below this, the exponential underflows and is set to 0
_ROUNDER = 1.5 * 2.0**52  # adding it leaves the nearest whole number in the last bits
_LOG2_E, _LN2_HIGH, _LN2_LOW = 1 / math.log(2), 6.93147180369123816490e-01, 1.90821492927058770002e-10
_C2, _C3, _C4, _C5, _C6, _C7, _C8, _C9, _C10, _C11, _C12, _C13 = (1 / math.factorial(n) for n in range(2, 14))


class SampleSet(NamedTuple):
    """Samples in groups of four, the last group padded with samples of zeros."""

    starts: np.ndarray  # [groups + 1] int64: where the features of each group start
    features: np.ndarray  # [all] int64: the features that are not 0 in the whole group
    values: np.ndarray  # [all, 4] float64
    labels: np.ndarray  # [samples] int64


_SAMPLES = types.NamedTuple(  # type: ignore[no-untyped-call]
    (int64[::1], int64[::1], float64[:, ::1], int64[::1]), SampleSet
)


def grouped(x: np.ndarray, labels: np.ndarray) -> SampleSet:
    """The samples x [samples, features] float64 without the features that are 0."""
    groups = -(-len(x) // _GROUP)
    padded = np.zeros((groups * _GROUP, x.shape[1]))
    padded[: len(x)] = x
    tiles = padded.reshape(groups, _GROUP, x.shape[1])
    group, features = np.nonzero(np.any(tiles, 1))
    starts = np.searchsorted(group, np.arange(groups + 1))
    return SampleSet(starts, features.copy(), tiles[group, :, features], labels.copy())


@emitted
def _fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, with one rounding."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return float64(float64, float64, float64), emit


@emitted
def _power(typing: Any, rounded: Any) -> Any:
    """2^k for the whole number k that adding `_ROUNDER` left in the last bits."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        bits = builder.shl(builder.bitcast(args[0], word), word(52))
        return builder.bitcast(builder.add(bits, word(1023 << 52)), ir.DoubleType())

    return float64(float64), emit


@inner
def _exp(x: float) -> float:
    """e^x for x <= 0, accurate to one or two units in the last place; nan stays nan."""
    low = x < _LOWEST
    x = _LOWEST if low else x
    rounded = x * _LOG2_E + _ROUNDER
    k = rounded - _ROUNDER
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW  # |r| <= ln(2) / 2, where the series below is accurate
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
    """log(1 + e^z) = max(z, 0) + log(1 + e^-|z|): adds the first part to the losses.

    `product` is the product of the factors 1 + e^-|z|, minus 1, so that small exponentials keep their
    precision.
    """
    for m in range(z.size):
        product[m] += _exp(-abs(z[m])) * (1.0 + product[m])
        losses[m] += 0.0 if z[m] <= 0.0 else z[m]  # in this order nan stays nan


@inner
def _shifted(z: np.ndarray, product: np.ndarray) -> None:
    """`product` is the product of the factors 1 / (1 + e^z) + SHIFT."""
    for m in range(z.size):
        e = _exp(-abs(z[m]))
        product[m] *= (e if z[m] > 0.0 else 1.0) / (1.0 + e) + SHIFT


@inner
def _four(samples: SampleSet, at: Index) -> tuple[float, float, float, float]:
    v = samples.values[at]
    return v[0], v[1], v[2], v[3]


@inner
def _multiply(samples: SampleSet, group: Index, points: np.ndarray, z: np.ndarray) -> None:
    """z [4, models]: the outputs for a group, of models [features + 1, models] whose last row is the bias.

    Four features are added at a time; otherwise most of the time goes into reading and writing the sums.
    """
    z0, z1, z2, z3 = z[0], z[1], z[2], z[3]
    for a in range(_GROUP):
        z[a] = points[-1]
    begin, end = samples.starts[group], samples.starts[group + 1]
    tail = end - (end - begin) % 4
    for at in range(begin, tail, 4):
        (a0, b0, c0, d0), (a1, b1, c1, d1) = _four(samples, at), _four(samples, at + 1)
        (a2, b2, c2, d2), (a3, b3, c3, d3) = _four(samples, at + 2), _four(samples, at + 3)
        p0, p1 = points[samples.features[at]], points[samples.features[at + 1]]
        p2, p3 = points[samples.features[at + 2]], points[samples.features[at + 3]]
        for m in range(z0.size):
            q0, q1, q2, q3 = p0[m], p1[m], p2[m], p3[m]
            z0[m] = _fma(a3, q3, _fma(a2, q2, _fma(a1, q1, _fma(a0, q0, z0[m]))))
            z1[m] = _fma(b3, q3, _fma(b2, q2, _fma(b1, q1, _fma(b0, q0, z1[m]))))
            z2[m] = _fma(c3, q3, _fma(c2, q2, _fma(c1, q1, _fma(c0, q0, z2[m]))))
            z3[m] = _fma(d3, q3, _fma(d2, q2, _fma(d1, q1, _fma(d0, q0, z3[m]))))
    for at in range(tail, end):
        (a0, b0, c0, d0), p0 = _four(samples, at), points[samples.features[at]]
        for m in range(z0.size):
            z0[m], z1[m] = _fma(a0, p0[m], z0[m]), _fma(b0, p0[m], z1[m])
            z2[m], z3[m] = _fma(c0, p0[m], z2[m]), _fma(d0, p0[m], z3[m])


@kernel(float64[:, ::1](_SAMPLES, given(float64, 3), boolean))
def entropies(samples: SampleSet, points: np.ndarray, shifted: bool) -> np.ndarray:
    """[problems, particles]: the losses at points [features + 1, problems, particles], summed over samples.

    A sample has class 1 in the problem of its label and class 0 in all others; the loss of class 1 at z is
    the loss of class 0 at -z.
    """
    rows, problems, particles = points.shape
    groups = -(-len(samples.labels) // _GROUP)
    if len(samples.starts) != groups + 1 or samples.values.shape != (len(samples.features), _GROUP):
        raise ValueError("samples must be as `grouped` makes them")
    for feature in samples.features:
        if not 0 <= feature < rows - 1:
            raise ValueError("points must have a row for each feature and one for the bias")
    for label in samples.labels:
        if not 0 <= label < problems:
            raise ValueError("labels must be those of the problems")
    models = points.reshape(rows, problems * particles)
    z, losses, product = (
        np.empty((_GROUP, models.shape[1])),
        np.zeros(models.shape[1]),
        np.empty(models.shape[1]),
    )
    count = len(samples.labels)
    for begin in range(0, count, _TOGETHER):
        product[:] = 1.0 if shifted else 0.0
        for i in range(begin, min(begin + _TOGETHER, count)):
            if i % _GROUP == 0:
                _multiply(samples, i // _GROUP, models, z)
            out, own = z[i % _GROUP], samples.labels[i] * particles
            for m in range(own, own + particles):
                out[m] = -out[m]
            if shifted:
                _shifted(out, product)
            else:
                _stable(out, losses, product)
        for m in range(losses.size):
            losses[m] += -math.log(product[m]) if shifted else math.log1p(product[m])
    return losses.reshape(problems, particles)
