"""Compiled code for simulations of small models.

The modules are imported on demand, because they load numba and compile on their first use on a machine.
"""

from __future__ import annotations

import gc
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context

# in two halves that take about as long to compile; networks are in one, because they have layers in common
MODULES = (
    ("conv_training", "conv_outputs", "mlp_training", "mlp_loss", "formats", "progress"),
    (
        *("philox", "generator", "swarm", "logistic", "packing", "trimming", "critical", "products", "fold"),
        *("vector_math", "cholesky", "label_balance", "sketch", "quantile", "columns", "runs", "mixing"),
        *("mutation", "eigen", "turns"),
    ),
)


def warm_up() -> None:
    """Compile all kernels, or load them from numba's cache: the halves in processes of their own."""
    import_module(f"{__name__}.jit").forget_stale_code()  # once, before anything is written
    with ProcessPoolExecutor(len(MODULES), get_context("spawn")) as pool:
        list(pool.map(_load, MODULES))


def _load(names: tuple[str, ...]) -> None:
    gc.disable()  # it takes 7 % of the time to look through all that a compiler makes
    for name in names:
        import_module(f"{__name__}.{name}")
