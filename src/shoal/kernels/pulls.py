"""Pulls of constant strength towards a model: what a term `||w - centre||` adds to a gradient.

A model may be pulled as a whole or part by part, and additionally where a mask says so. The length of a pull
does not depend on how far away the model is, so each step must first compute that distance.
"""

from __future__ import annotations

import numpy as np

from shoal.kernels.jit import Real, apart, bare
from shoal.kernels.squares import add_squares

PIECE = 512  # numbers that are masked together
_ZERO = np.float32(0)


@bare
def pull(
    away: np.ndarray, mask: np.ndarray, strengths: np.ndarray, ends: np.ndarray, scales: np.ndarray,
    tiny: float, sums: np.ndarray, some: np.ndarray,
) -> None:  # fmt: skip
    """Replace w - centre by the gradient of the sum over parts k, from ends[k] to ends[k + 1], of

        scales[k] * (strengths[0] * sqrt(||w - centre||^2 + tiny)
                     + strengths[1] * sqrt(||mask o (w - centre)||^2 + tiny)).

    Without a second strength no mask is needed. `sums` [16] and `some` [PIECE] are scratch space.
    """
    apart()
    for k in range(scales.size):
        part, own = away[ends[k] : ends[k + 1]], mask[ends[k] : ends[k + 1]]
        near = _length(part, sums, tiny)
        if strengths[1] == _ZERO:
            factor = scales[k] * strengths[0] / near
            for p in range(part.size):
                part[p] *= factor
        else:
            first = scales[k] * strengths[0] / near
            second = scales[k] * strengths[1] / _masked_length(part, own, sums, some, tiny)
            for p in range(part.size):
                part[p] *= first + second * (own[p] * own[p])


@bare
def _length(part: np.ndarray, sums: np.ndarray, tiny: float) -> Real:
    sums[:] = 0.0
    add_squares(sums, part)
    return np.float32(np.sqrt(sums.sum() + tiny))


@bare
def _masked_length(
    part: np.ndarray, mask: np.ndarray, sums: np.ndarray, some: np.ndarray, tiny: float
) -> Real:
    """The same for mask o part."""
    sums[:] = 0.0
    for first in range(0, part.size, PIECE):
        here, own = part[first : first + PIECE], mask[first : first + PIECE]
        for p in range(here.size):
            some[p] = here[p] * own[p]
        add_squares(sums, some[: here.size])
    return np.float32(np.sqrt(sums.sum() + tiny))
