"""How kernels are compiled.

fastmath is never used: it lets the compiler assume that there is no inf or nan, but a client that diverges
must be detected. Sums whose order matters for speed are written in `tiles` instead.
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

# leave out wrappers that are never called
_CALLED: dict[str, Any] = {"no_cfunc_wrapper": True}
_WITHIN: dict[str, Any] = {"no_cpython_wrapper": True, **_CALLED}


def inner(function: Function) -> Function:
    """A function that only kernels call; it is compiled and cached as part of them."""
    compiled: Function = numba.njit(function, nogil=True, error_model="numpy", **_WITHIN)
    return compiled


def bare(function: Function) -> Function:
    """As `inner`, for a function that neither creates nor returns arrays.

    It does no reference counting, which takes longer for a tuple of arrays than computing a small layer.
    """
    compiled: Function = numba.njit(function, nogil=True, error_model="numpy", **{**_WITHIN, "_nrt": False})
    return compiled


def merged(function: Function) -> Function:
    """As `inner`, for a function with a single caller, into which it is inlined before anything is compiled.

    Otherwise a function is optimised once by itself, and once more for each of the callers above it.
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
            except (AttributeError, ImportError):  # cached by another version of Shoal; its names are gone
                FunctionCache(function).flush()  # type: ignore[no-untyped-call]
                made = compile(function)
        if sum(made.stats.cache_misses.values()):  # type: ignore[attr-defined]
            _announce()
        return made

    return compiled


@cache
def forget_stale_code() -> None:
    """Delete all cached code once any source has changed: numba only checks the file of the kernel itself."""
    folder = Path(__file__).parent
    sources = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    stamp, now = folder / "__pycache__" / "sources.sha256", hashlib.sha256(sources).hexdigest()
    with suppress(OSError):  # a read-only installation has not changed since it was installed
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
    """Called by a function that is to be compiled by itself instead of being inlined into each caller.

    Inside a large function, LLVM runs out of registers in the loops that matter, and every copy of a function
    takes as long to compile as the first.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return numba.types.void(), emit


def given(kind: Any, dimensions: int) -> Any:
    """The type of a read-only contiguous array."""
    return numba.types.Array(kind, dimensions, "C", readonly=True)
