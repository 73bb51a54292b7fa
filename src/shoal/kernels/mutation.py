"""Moving a model along its last step, each layer by its own multiple of the step."""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int64, types

from shoal.kernels.jit import given, kernel


@kernel(types.void(float32[::1], given(float32, 1), given(float32, 1), given(int64, 1), given(float64, 1)))
def extend_parts(
    out: np.ndarray, now: np.ndarray, before: np.ndarray, ends: np.ndarray, by: np.ndarray
) -> None:
    """out = now + by[k] * (now - before) from ends[k] to ends[k + 1], in float64 and rounded once."""
    if now.size != out.size or before.size != out.size or ends.size != by.size + 1:
        raise ValueError("out, now, before, ends and by do not fit together")
    if ends[0] != 0 or ends[-1] != out.size or (ends[1:] < ends[:-1]).any():
        raise ValueError("the parts do not make up the whole")
    for k in range(by.size):
        target, here = out[ends[k] : ends[k + 1]], now[ends[k] : ends[k + 1]]
        there, factor = before[ends[k] : ends[k + 1]], by[k]
        if factor == 0.0:
            target[:] = here
            continue
        for p in range(target.size):
            value = np.float64(here[p])
            target[p] = value + factor * (value - np.float64(there[p]))
