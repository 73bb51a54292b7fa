"""Compiled code for simulations of small dense models.

Modules are imported when needed, because they load numba and, the first time on a machine, compile.
"""

from __future__ import annotations

from importlib import import_module

MODULES = (
    *("philox", "cholesky", "critical", "dense", "fold", "logistic", "products", "steps", "swarm"),
    "trimming",
)


def warm_up() -> None:
    """Compile every kernel, or load it if numba's cache has it."""
    for name in MODULES:
        import_module(f"{__name__}.{name}")
