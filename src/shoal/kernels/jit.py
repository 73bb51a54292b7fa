"""How kernels are compiled.

fastmath is never used: it may assume that there is no inf and no nan, but a client that diverges must be
noticed. Sums whose order matters for speed are written in `tiles` instead.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

from shoal.kernels.linking import as_parts

# types of scalars in kernels, for the type checker
Index = int | np.int64
Word = int | np.uint64
Real = float | np.float32
Flag = bool | np.bool_

Function = TypeVar("Function", bound=Callable[..., Any])

# no wrappers that nobody calls
_CALLED: dict[str, Any] = {"no_cfunc_wrapper": True}
_WITHIN: dict[str, Any] = {"no_cpython_wrapper": True, **_CALLED}


def inner(function: Function) -> Function:
    """A function that only kernels call; it is compiled and cached as a part of them."""
    compiled: Function = numba.njit(function, nogil=True, error_model="numpy", **_WITHIN)
    return compiled


def bare(function: Function) -> Function:
    """As `inner`, for a function that neither creates nor returns arrays.

    No references are counted in it: to count those of a tuple of arrays takes longer than a small layer.
    """
    compiled: Function = numba.njit(function, nogil=True, error_model="numpy", **{**_WITHIN, "_nrt": False})
    return compiled


def merged(function: Function) -> Function:
    """As `inner`, for a function with one caller, of which it becomes a part before anything is compiled.

    A function is otherwise optimised once for itself, and once more for each of the callers above it.
    """
    compiled: Function = numba.njit(function, nogil=True, error_model="numpy", inline="always")
    return compiled


def kernel(signature: Any) -> Callable[[Function], Function]:
    """A function that Python calls: compiled when its module is imported, unless numba's cache has it.

    The signature fixes one version, so arrays of another type are an error instead of a second compilation.
    The interpreter lock is released, so calls may run in parallel threads.
    """

    forget_stale_code()

    def compiled(function: Function) -> Function:
        compile = numba.njit(signature, cache=True, nogil=True, error_model="numpy", **_CALLED)
        with as_parts():
            try:
                made: Function = compile(function)
            except (AttributeError, ImportError):  # cached by another version of Shoal, whose names are gone
                FunctionCache(function).flush()  # type: ignore[no-untyped-call]
                made = compile(function)
        if sum(made.stats.cache_misses.values()):  # type: ignore[attr-defined]
            _announce()
        return made

    return compiled


@cache
def forget_stale_code() -> None:
    """Drop all code on disk once a source has changed: numba looks at the file of each kernel alone."""
    folder = Path(__file__).parent
    sources = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    stamp, now = folder / "__pycache__" / "sources.sha256", hashlib.sha256(sources).hexdigest()
    with suppress(OSError):  # where nothing can be written, nothing has changed since it was installed
        if not stamp.exists() or stamp.read_text() != now:
            for code in stamp.parent.glob("*.nb?"):
                code.unlink()
            stamp.parent.mkdir(exist_ok=True)
            stamp.write_text(now)


@cache
def _announce() -> None:
    """Tell the user once, after the first and shortest kernel, that compilation takes a while."""
    if sys.stderr.isatty():
        print("Compiling for this machine: once, about a minute.", file=sys.stderr, flush=True)


def emitted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose LLVM code is emitted by `function`."""
    made: Callable[..., Any] = intrinsic(function)
    return made


@emitted
def apart(typing: Any) -> Any:
    """Called by a function that is to be compiled by itself, and not as a part of each caller.

    In the midst of a large function, LLVM runs out of registers in the loops that matter, and copies of a
    function take as long to compile as the first.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return numba.types.void(), emit


def given(kind: Any, dimensions: int) -> Any:
    """The type of a read-only contiguous array."""
    return numba.types.Array(kind, dimensions, "C", readonly=True)
