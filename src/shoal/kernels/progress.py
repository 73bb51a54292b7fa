"""How threads share clients: each takes the next one that is not taken yet, and marks it once trained.

Progress is [C + 1] int64: how many clients were taken, then a 1 for each client whose results may be read.
This does not need the interpreter lock, so a thread goes from client to client while another runs Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import boolean, int64
from numba.core import types

from shoal.kernels.jit import Index, emitted, kernel

_WORD = ir.IntType(64)
_ALIGNED = 8  # bytes


def new_progress(clients: int) -> np.ndarray:
    """Progress before any client is taken."""
    return np.zeros(clients + 1, np.int64)


def _address(context: Any, builder: Any, kind: Any, array: Any, place: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [place])


@emitted
def take(typing: Any, progress: Any) -> Any:
    """The next client; a number not below the number of clients if there is none."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = _address(context, builder, signature.args[0], args[0], ir.Constant(_WORD, 0))
        return builder.atomic_rmw("add", first, ir.Constant(_WORD, 1), "monotonic")

    return int64(progress), emit


@emitted
def publish(typing: Any, progress: Any, client: Any) -> Any:
    """Mark the client as trained: a thread that finds it `ready` sees everything written before."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.add(args[1], ir.Constant(_WORD, 1))
        flag = _address(context, builder, signature.args[0], args[0], place)
        builder.store_atomic(ir.Constant(_WORD, 1), flag, "release", _ALIGNED)
        return context.get_dummy_value()

    return types.void(progress, int64), emit


@emitted
def _flag(typing: Any, progress: Any, client: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.add(args[1], ir.Constant(_WORD, 1))
        flag = _address(context, builder, signature.args[0], args[0], place)
        return builder.load_atomic(flag, "acquire", _ALIGNED)

    return int64(progress, int64), emit


@kernel(boolean(int64[::1], int64))
def ready(progress: np.ndarray, client: Index) -> bool:
    """Whether the client is trained, and its results may be read."""
    return bool(_flag(progress, client) != 0)
