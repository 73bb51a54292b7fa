"""Control variates: what a client remembers of its own gradients, beside the mean of all clients'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.core.flat import Flat, flat, vectors
from shoal.core.tree import elementwise
from shoal.core.types import PerClient
from shoal.kernels import vector_math

Control = Mapping[str, Tensor]


class Controls(NamedTuple):
    """A client's next control variate, and what it is more than the last one.

    Of a block of clients: one for each, and changes with a leading client axis.
    """

    own: Control | PerClient
    change: Control


def next_controls(update: Control, common: Control, before: Control, reach: float) -> Controls:
    """What follows on `before` after an update; the change is `-update / reach - common`."""
    whole = vectors(update, common, flat(before))  # memories from worker processes are not in one vector
    if isinstance(update, Flat) and whole is not None and all(map(_compiled, whole)):
        own, change = torch.empty_like(whole[0]), torch.empty_like(whole[0])
        update_of, common_of, before_of = (vector.numpy() for vector in whole)
        vector_math.control(own.numpy(), change.numpy(), update_of, common_of, before_of, reach)
        return Controls(update.layout.tree(own), update.layout.tree(change))
    difference = elementwise(lambda y, c: (y / -reach).sub_(c), update, common)
    return Controls(elementwise(torch.add, before, difference), difference)


def _compiled(vector: Tensor) -> bool:
    return vector.dtype == torch.float32 and vector.device.type == "cpu" and vector.is_contiguous()
