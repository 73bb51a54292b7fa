"""Shoal: federated learning between clients that are nothing alike."""

from shoal.core.data import Dataset
from shoal.core.errors import SpecError, StageError
from shoal.core.method import Method
from shoal.runs.runner import Result, resume, run
from shoal.spec import Spec, dump_spec, load_spec

__version__ = "0.1.0"

__all__ = [
    "Dataset",
    "Method",
    "Result",
    "Spec",
    "SpecError",
    "StageError",
    "dump_spec",
    "load_spec",
    "resume",
    "run",
]
