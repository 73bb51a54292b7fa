"""Compiled code for simulations of small models.

The modules are imported on demand, because they load numba and compile on their first use on a machine.
"""

from __future__ import annotations

import gc
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context

# two halves that take about equally long to compile; all networks are in one, because they share layers
MODULES = (
    ("conv_training", "conv_outputs", "mlp_training", "mlp_loss", "formats", "progress"),
    (
        *("philox", "generator", "swarm", "logistic", "packing", "trimming", "extremes", "products", "fold"),
        *("model_steps", "cholesky", "label_balance", "sketch", "quantile", "columns", "index_ranges"),
        *("mixing", "mutation", "eigen", "polar_factors"),
    ),
)


def warm_up() -> None:
    """Compile all kernels, or load them from numba's cache, each half in its own process."""
    import_module(f"{__name__}.jit").forget_stale_code()  # once, before anything is written
    with ProcessPoolExecutor(len(MODULES), get_context("spawn")) as pool:
        list(pool.map(_load, MODULES))


def _load(names: tuple[str, ...]) -> None:
    gc.disable()  # scanning all the objects that a compiler creates takes 7 % of the time
    for name in names:
        import_module(f"{__name__}.{name}")
