"""Initial weights from a file, checked by name and shape."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from shoal.core.errors import SpecError, one_line


def with_initial_weights(build: Callable[[], nn.Module], path: Path) -> nn.Module:
    """The module with the weights from the file."""
    module, given = build(), _read(path)
    wanted = module.state_dict()
    for name in wanted:
        if name not in given:
            raise SpecError(f"task.init = {str(path)!r} has no {name!r}, which the model has{_nearly(given)}")
    for name, value in given.items():
        if name not in wanted:
            raise SpecError(
                f"task.init = {str(path)!r} has {name!r}, which the model has not; choose the model it is of"
            )
        if value.shape != wanted[name].shape:
            raise SpecError(
                f"task.init = {str(path)!r}: {name} has shape {tuple(value.shape)}, "
                f"but the model's has {tuple(wanted[name].shape)}"
            )
    module.load_state_dict(given)
    return module


def _nearly(given: dict[str, Tensor]) -> str:
    return f"; it has {', '.join(list(given)[:4])}, ..." if given else "; it is empty"


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise SpecError(f"task.init = {str(path)!r} does not exist; looked in {path.absolute().parent}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the file may be anything
        raise SpecError(f"task.init = {str(path)!r} cannot be read as weights ({one_line(error)})") from None
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise SpecError(f"task.init = {str(path)!r} must hold a state_dict: names and tensors")
    return found
