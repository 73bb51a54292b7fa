"""Objects for other processes of a trusted cluster: pickled, with their large tensors kept separate.

The tensors are sent as NumPy arrays, which Ray keeps in shared memory: all actors on a node read one copy.
"""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

SMALL = 2**12  # bytes; tensors up to this size are pickled with the rest


class Packed(NamedTuple):
    """A pickled object without its large tensors, and these tensors."""

    pickled: bytes
    arrays: Sequence[np.ndarray]


def pack(value: Any) -> Packed:
    """The object, ready to be sent; functions and classes of `__main__` are sent too."""
    import cloudpickle  # installed with Ray

    arrays: list[np.ndarray] = []

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, part: Any) -> int | None:
            if type(part) is not Tensor or part.numel() * part.element_size() <= SMALL:
                return None
            if part.dtype not in _ALIKE or part.device.type != "cpu":
                return None
            arrays.append(part.detach().contiguous().numpy())
            return len(arrays) - 1

    buffer = io.BytesIO()
    Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return Packed(buffer.getvalue(), arrays)


def unpack(packed: Packed, *, copied: bool = True) -> Any:
    """The object; unless `copied`, its large tensors must never be written to."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, number: int) -> Tensor:
            array = packed.arrays[number]
            if copied:
                return torch.from_numpy(array.copy())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that the array is not writable
                return torch.from_numpy(array)

    return Unpickler(io.BytesIO(packed.pickled)).load()


_ALIKE = {torch.float64, torch.float32, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8}
