"""Control variates: what a client remembers of its own gradients, beside the mean of all clients'."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from shoal.core.flat import Flat, vectors
from shoal.core.tree import elementwise, subtract
from shoal.kernels import vector_math

Control = Mapping[str, Tensor]


def next_control(update: Control, shift: Control, before: Control, reach: float) -> tuple[Control, Control]:
    """`-update / reach - shift`, and how far that is from the control `before`."""
    whole = vectors(update, shift, before)
    if isinstance(update, Flat) and whole is not None and all(map(_compiled, whole)):
        own, change = torch.empty_like(whole[0]), torch.empty_like(whole[0])
        change_of, shift_of, before_of = (vector.numpy() for vector in whole)
        vector_math.control(own.numpy(), change.numpy(), change_of, shift_of, before_of, reach)
        return update.layout.tree(own), update.layout.tree(change)
    control = elementwise(lambda y, c: (y / -reach).sub_(c), update, shift)
    return control, subtract(control, before)


def _compiled(vector: Tensor) -> bool:
    return vector.dtype == torch.float32 and vector.device.type == "cpu" and vector.is_contiguous()
