"""Compiled code for simulations of small dense models.

Modules are imported when needed, because they load numba and, the first time on a machine, compile.
"""

from __future__ import annotations

from importlib import import_module


def warm_up() -> None:
    """Compile every kernel, or load it if numba's cache has it."""
    for name in ("philox", "dense", "forward", "fold", "generator", "logistic", "steps", "swarm"):
        import_module(f"{__name__}.{name}")
