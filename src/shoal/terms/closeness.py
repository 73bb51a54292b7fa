"""The terms of GENE-FL: a pull of constant strength towards the cluster's model."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from shoal.core.term import Step, Term

TINY = 1e-12  # added under the square root, which has no derivative at 0


@dataclass(frozen=True, eq=False)  # compared by identity: its fields are tensors
class Closeness(Term):
    """`strength ||M o (w - centre)||_2`, on the parameters that the centre has. Without a mask M is 1.

    With `by_layer`, the sum over layers of `||M_l o (w_l - centre_l)||_2 / sqrt(size_l)`: large layers are
    held less tightly.
    """

    strength: float
    centre: Mapping[str, Tensor]
    mask: Mapping[str, Tensor] | None = None  # by name, with the same shapes: 1 where the term acts
    by_layer: bool = False

    @cached_property
    def active(self) -> bool:
        """See `Term`."""
        return self.strength != 0 and (self.mask is None or any(bool(m.any()) for m in self.mask.values()))

    @property
    def kind(self) -> Hashable:
        """See `Term`. Each client has a centre and a mask of its own."""
        return Closeness, self.mask is None, self.by_layer

    def loss(self, step: Step) -> Tensor:
        """See the class."""
        weights = step.weights.params
        squares, sizes = [], []
        for name, centre in self.centre.items():
            apart = weights[name] - centre
            if self.mask is not None:
                apart = apart * self.mask[name]
            squares.append(apart.square().sum())
            sizes.append(apart.numel())
        if not squares:
            return torch.zeros((), device=step.outputs.device)
        together = torch.stack(squares)
        if self.by_layer:
            rooted = (together + TINY).sqrt() / torch.tensor(sizes, device=together.device).sqrt()
            return self.strength * rooted.sum()
        return self.strength * (together.sum() + TINY).sqrt()
