"""Shoal: federated learning between clients that are nothing alike.

Public names are imported on first use, so that `shoal --help` does not wait for torch.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "Dataset",
    "Method",
    "Result",
    "Spec",
    "SpecError",
    "StageError",
    "compare",
    "dump_spec",
    "load",
    "load_spec",
    "resume",
    "run",
]

_HOMES = {
    "shoal.core.data": ("Dataset",),
    "shoal.core.errors": ("SpecError", "StageError"),
    "shoal.core.method": ("Method",),
    "shoal.runs.result": ("Result",),
    "shoal.runs.resume": ("resume",),
    "shoal.runs.runner": ("run",),
    "shoal.study.comparison": ("Comparison", "compare", "load"),
    "shoal.spec": ("Spec", "dump_spec", "load_spec"),
}

if TYPE_CHECKING:  # the same names, for type checkers
    from shoal.core.data import Dataset
    from shoal.core.errors import SpecError, StageError
    from shoal.core.method import Method
    from shoal.runs.result import Result
    from shoal.runs.resume import resume
    from shoal.runs.runner import run
    from shoal.spec import Spec, dump_spec, load_spec
    from shoal.study.comparison import Comparison, compare, load
else:

    def __getattr__(name: str) -> Any:
        for home, names in _HOMES.items():
            if name in names:
                globals()[name] = getattr(import_module(home), name)
                return globals()[name]
        if not name.startswith("_") and find_spec(f"shoal.{name}"):  # e.g. `shoal.methods`
            return import_module(f"shoal.{name}")
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
