"""The number format that a client trains in: which one it is, and the rounding of weights and steps.

The weights that training starts from are rounded to the nearest number of the format, and so is every
gradient. Momentum and weights are rounded stochastically after every step, using the client's key: a step
that is too small for the format is then taken occasionally instead of never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.training import Start
from shoal.core.tree import elementwise
from shoal.core.types import Setting, Tree, Weights
from shoal.kernels.formats import (
    FORMATS,
    MOMENTUM,
    WEIGHTS,
    FormatName,
    NumberFormat,
    round_either,
    round_nearest,
)
from shoal.kernels.training import Rounding


def format_of(own: FormatName, setting: Setting) -> FormatName:
    """The format of a client: that of its setting `format`, or the solver's own."""
    name: FormatName = setting.get("format", own)
    if name not in FORMATS:
        raise SpecError(f"the setting format must be one of {', '.join(FORMATS)}; got {name!r}")
    return name


def rounded(weights: Weights, name: FormatName) -> Weights:
    """The weights with their parameters rounded to the nearest numbers of the format; buffers are kept."""
    return weights if name == "float32" else weights._replace(params=_nearest(weights.params, name))


def starts_rounded(starts: Sequence[Start], names: Sequence[FormatName]) -> list[Start]:
    """The starts of a block, rounded: one for all clients if they have one start and one format."""
    if len(starts) == 1 and len(set(names)) == 1:
        names = names[:1]
    every = starts if len(starts) > 1 else [starts[0]] * len(names)
    done: dict[tuple[int, FormatName], Weights] = {}
    for start, name in zip(every, names, strict=True):
        place = (id(start.weights), name)
        if place not in done:
            done[place] = rounded(start.weights, name)
    return [
        start._replace(weights=done[id(start.weights), name])
        for start, name in zip(every, names, strict=True)
    ]


def _nearest(params: Tree, name: FormatName) -> Tree:
    def shorten(leaf: Tensor) -> Tensor:
        values = _vector(leaf).copy()
        round_nearest(values, *FORMATS[name])
        return torch.from_numpy(values).reshape(leaf.shape).to(leaf.device)

    return elementwise(shorten, params)


def block_rounding(names: Sequence[FormatName], keys: Sequence[Key], random: bool) -> Rounding:
    """The rounding of a block of clients, for the kernels."""
    forms = [FORMATS[name] for name in names]
    return Rounding(
        np.array([(form.digits, form.least) for form in forms], np.int64),
        np.array([form.largest for form in forms], np.float32),
        random,
        np.array([key.words for key in keys], np.uint64),
    )


@dataclass(frozen=True)
class StepRounding:
    """Rounds the results of one client's step in place, bit for bit like the kernels."""

    form: NumberFormat
    random: bool
    key: Key

    @classmethod
    def of(cls, name: FormatName, random: bool, key: Key) -> StepRounding | None:
        """The rounding for a format; None for float32, which needs none."""
        return None if name == "float32" else cls(FORMATS[name], random, key)

    def gradients(self, tensors: Sequence[Tensor]) -> None:
        """Round gradients to the nearest number."""
        for tensor in tensors:
            values = _vector(tensor)
            round_nearest(values, *self.form)
            _keep(tensor, values)

    def momentum(self, tensors: Sequence[Tensor], step: int) -> None:
        """Round momentum: stochastically, unless everything is rounded to the nearest number."""
        self._either(tensors, step, MOMENTUM)

    def weights(self, tensors: Sequence[Tensor], step: int) -> None:
        """Round weights: stochastically, unless everything is rounded to the nearest number."""
        self._either(tensors, step, WEIGHTS)

    def _either(self, tensors: Sequence[Tensor], step: int, purpose: np.uint64) -> None:
        if not self.random:
            self.gradients(tensors)
            return
        first = 0  # the tensor's first element among all parameters, in the model's order
        for tensor in tensors:
            values = _vector(tensor)
            round_either(values, *self.form, *self.key.words, step, purpose, first)
            _keep(tensor, values)
            first += tensor.numel()


def _vector(tensor: Tensor) -> np.ndarray:
    """The numbers in the order of the tensor's indices, whatever their order in memory; a copy if need be."""
    return tensor.detach().cpu().contiguous().reshape(-1).numpy()


def _keep(tensor: Tensor, values: np.ndarray) -> None:
    """Write the values back, unless they are the tensor's own memory."""
    if tensor.device.type != "cpu" or tensor.data_ptr() != values.ctypes.data:
        tensor.detach().copy_(torch.from_numpy(values).reshape(tensor.shape))
