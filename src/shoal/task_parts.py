"""The data set and the model of a task: by name, as a function or a class, or as the object itself."""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from shoal.catalogues import DATASET, MODEL
from shoal.config import Argument, Catalogue, arguments, choose
from shoal.core.data import Dataset
from shoal.core.errors import SpecError

PYTHON = "python:"  # the prefix for names of objects that cannot be imported


def dataset_loader(given: Any) -> Callable[..., Dataset]:
    """The function that returns the data set."""
    if isinstance(given, Dataset):
        return _named(lambda: given, given.name)
    return _function(given, DATASET, "task.dataset", "a name, a Dataset, or a function that returns one")


def model_builder(given: Any) -> Callable[..., nn.Module]:
    """The function of a sample's shape and the number of classes that returns the model."""
    if isinstance(given, nn.Module):  # its weights are the initial weights
        return _named(lambda shape, classes: copy.deepcopy(given), type(given).__name__)
    kinds = "a name, an nn.Module (class or instance), or a function of shape and classes that returns one"
    found = _function(given, MODEL, "task.model", kinds)
    return found if _takes_shape(found) else _without_shape(found)


def options_of(dataset: Any, model: Any) -> dict[str, Argument] | None:
    """The options that a spec may set; None if the data set or model was an object in another process."""
    if any(isinstance(part, str) and part.startswith(PYTHON) for part in (dataset, model)):
        return None
    return arguments(dataset_loader(dataset)) | arguments(model_builder(model))


def part_name(given: Any) -> str:
    """The name of a data set or model in specs and titles: `package.module:object` if it can be imported."""
    if isinstance(given, str):
        return given
    if isinstance(given, Dataset):
        return f"{PYTHON}{given.name}"
    if isinstance(given, nn.Module):
        return f"{PYTHON}{type(given).__name__}"
    module, name = getattr(given, "__module__", ""), getattr(given, "__qualname__", type(given).__name__)
    if module and module != "__main__" and "." not in name:
        try:
            if getattr(importlib.import_module(module), name) is given:
                return f"{module}:{name}"
        except (ImportError, AttributeError):
            pass
    return f"{PYTHON}{name.rpartition('.')[2].strip('<>')}"


def _function(given: Any, catalogue: Catalogue, path: str, kinds: str) -> Callable[..., Any]:
    if isinstance(given, str):
        if given.startswith(PYTHON):
            raise SpecError(
                f"{path} = {given!r} was an object of the Python process that started the run; "
                "run it again there, or put it into a module and name it package.module:object"
            )
        return choose(catalogue, given, path)
    if callable(given):
        return given  # type: ignore[no-any-return]
    raise SpecError(f"{path} must be {kinds}; got a {type(given).__name__}")


def _takes_shape(builder: Callable[..., Any]) -> bool:
    """Whether it takes a sample's shape and the number of classes, rather than no arguments."""
    try:
        signature = inspect.signature(builder)
    except ValueError:
        return True
    if isinstance(builder, type):
        return list(signature.parameters)[:2] == ["shape", "classes"]
    places = [
        p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return any(p.default is p.empty for p in places) or len(places) > 1


def _without_shape(builder: Callable[..., Any]) -> Callable[..., Any]:
    try:
        inspect.signature(builder).bind()
    except TypeError as error:
        raise SpecError(
            f"task.model: {builder.__name__} must take shape and classes, or nothing ({error})"
        ) from None
    return _named(lambda shape, classes: builder(), builder.__name__)


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    function.__name__ = name
    return function
