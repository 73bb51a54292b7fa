"""Compiled code for simulations of small models.

The modules are imported on demand, because they load numba and compile on their first use on a machine.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context

# in two halves that take about as long to compile
MODULES = (
    (
        *("philox", "mlp_training", "mlp_loss", "generator", "swarm", "fold", "vector_math", "cholesky"),
        *("conv_outputs", "progress"),
    ),
    (
        *("conv_training", "logistic", "packing", "trimming", "critical", "products", "columns"),
        *("formats", "label_balance", "sketch", "quantile", "runs", "mixing", "mutation"),
    ),
)


def warm_up() -> None:
    """Compile all kernels, or load them from numba's cache: the halves in processes of their own."""
    import_module(f"{__name__}.jit").forget_stale_code()  # once, before anything is written
    with ProcessPoolExecutor(len(MODULES), get_context("spawn")) as pool:
        list(pool.map(_load, MODULES))


def _load(names: tuple[str, ...]) -> None:
    for name in names:
        import_module(f"{__name__}.{name}")
