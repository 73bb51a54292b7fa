"""Control variates: what a client remembers of its own gradients, beside the mean of all clients'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.flat import Flat, Layout, flat
from shoal.core.tree import elementwise
from shoal.core.types import PerClient
from shoal.kernels.fold import control_sum

Control = Mapping[str, Tensor]


class Controls(NamedTuple):
    """A client's next control variate, and what it is more than the last one; of a block, one for each."""

    own: Control | PerClient
    change: Control | PerClient


def next_controls(update: Control, common: Control, before: Control, reach: float) -> Controls:
    """What follows on `before` after an update: `before - common - update / reach`, and `-update / reach -
    common` is the change. With the bits of kernels, which have `common - before` at hand."""
    pace = _pace(update, reach)
    own = elementwise(lambda c, b, u: (0 - (c - b)).sub_(u * pace), common, flat(before), update)
    return Controls(own, elementwise(lambda u, c: (u * -pace).sub_(c), update, common))


def _pace(update: Control, reach: float) -> float:
    """`1 / reach`, by which kernels multiply, as they round it."""
    narrow = all(value.dtype == torch.float32 for value in update.values())
    return float(np.float32(1) / np.float32(reach)) if narrow else 1 / reach


class ControlChanges(Sequence[Control]):
    """The changes of the control variates of a block's clients, computed from their updates on access.

    Those that are only added up are never written to memory. Others lie side by side.
    """

    def __init__(self, updates: Flat, common: Sequence[Tensor], paces: np.ndarray) -> None:
        self._updates = updates  # each tensor has a leading client axis
        self._common = common  # the vector of each client's shift, or one for all
        self._paces = paces  # [clients] float32
        self._space, self._written = torch.empty_like(updates.vector), updates.vector._version

    def __len__(self) -> int:
        return len(self._paces)

    def __getitem__(self, place: Any) -> Any:
        update, pace = self._read()[place], float(self._paces[place])
        common = self._common[place if len(self._common) > 1 else 0]
        change = torch.mul(update, -pace, out=self._space[place]).sub_(common)
        return self._updates.layout.tree(change)

    def __reduce__(self) -> tuple[type, tuple[list[Control]]]:
        return list, ([self[i] for i in range(len(self))],)

    @property
    def layout(self) -> Layout:
        """Of each of them."""
        return self._updates.layout

    def add_to(self, sums: Tensor, *, fresh: bool) -> None:
        """Add all of them, in order, to a vector of sums in float64, which counts as 0 if it is fresh."""
        rows, count = self._read().numpy(), len(self) // len(self._common)  # that have the same shift
        for first, common in zip(range(0, len(self), count), self._common, strict=True):
            some, paces = rows[first : first + count], self._paces[first : first + count]
            control_sum(sums.numpy(), some, paces, common.numpy(), fresh=fresh and first == 0)

    def _read(self) -> Tensor:
        """[clients, numbers]: the updates."""
        vector = self._updates.vector
        if vector._version != self._written:
            raise ValueError("updates were written to before the changes of control variates were read")
        return vector
