"""Compiled code for simulations of small models.

The modules are imported on demand, because they load numba and compile on their first use on a machine.
"""

from __future__ import annotations

from importlib import import_module

MODULES = (
    *("philox", "mlp_training", "mlp_loss", "conv_training", "conv_outputs", "fold", "vector_math"),
    *("logistic", "generator", "swarm", "cholesky", "critical", "products", "trimming", "sketch"),
    *("packing", "formats", "label_balance", "quantile"),
)


def warm_up() -> None:
    """Compile all kernels, or load them from numba's cache."""
    for name in MODULES:
        import_module(f"{__name__}.{name}")
