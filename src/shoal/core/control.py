"""Control variates: a client's estimate of its own gradient, next to the mean of all clients'."""

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
    """A client's next control variate and its change from the last one; `PerClient` for a block."""

    own: Control | PerClient
    change: Control | PerClient


def next_controls(update: Control, common: Control, before: Control, reach: float) -> Controls:
    """After an update: `before - common - update / reach`, and its change `-update / reach - common`.

    Bit for bit like the kernels, which start from `common - before`.
    """
    pace = _pace(update, reach)
    own = elementwise(lambda c, b, u: (0 - (c - b)).sub_(u * pace), common, flat(before), update)
    return Controls(own, elementwise(lambda u, c: (u * -pace).sub_(c), update, common))


def _pace(update: Control, reach: float) -> float:
    """`1 / reach`, rounded as in the kernels, which multiply by it."""
    narrow = all(value.dtype == torch.float32 for value in update.values())
    return float(np.float32(1) / np.float32(reach)) if narrow else 1 / reach


class ControlChanges(Sequence[Control]):
    """The changes of the control variates of a block's clients, computed from their updates on access.

    Changes that are only summed are never written to memory. The others are stored side by side.
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
        """The layout of each change."""
        return self._updates.layout

    def add_to(self, sums: Tensor, *, fresh: bool) -> None:
        """Add all changes, in order, to a float64 vector of sums, which is taken as 0 if it is `fresh`."""
        rows, count = self._read().numpy(), len(self) // len(self._common)  # clients with the same shift
        for first, common in zip(range(0, len(self), count), self._common, strict=True):
            some, paces = rows[first : first + count], self._paces[first : first + count]
            control_sum(sums.numpy(), some, paces, common.numpy(), fresh=fresh and first == 0)

    def _read(self) -> Tensor:
        """[clients, parameters]: the updates, if nothing has been written to them."""
        vector = self._updates.vector
        if vector._version != self._written:
            raise ValueError("updates were written to before the changes of control variates were read")
        return vector
