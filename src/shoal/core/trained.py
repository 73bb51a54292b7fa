"""The results that a solver returns: for one client's training, or for a block of clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.control import Control, Controls
from shoal.core.tree import row, subtract
from shoal.core.types import PerClient, Weights


@dataclass(frozen=True)
class Trained:
    """The result of one client's training.

    The weights may live in the resident model until the next client trains; `update` reads them there.
    """

    held: Weights | None  # None: only the update was requested
    steps: int
    loss: Tensor  # [] the mean over the steps, computed before each step and without terms
    borrowed: bool = False
    change: Weights | None = None  # the result of `update`, if it is already known
    controls: Controls | None = None  # if they were requested

    @property
    def weights(self) -> Weights:
        """A copy of the trained weights that may be kept."""
        assert self.held is not None, "a Start with only_update leaves no weights"
        if not self.borrowed:
            return self.held
        own = partial(torch.clone, memory_format=torch.contiguous_format)
        return Weights(*({name: own(value.detach()) for name, value in part.items()} for part in self.held))

    def update(self, start: Weights) -> Weights:
        """The trained weights minus the weights that training started from."""
        if self.change is not None:
            return self.change
        assert self.held is not None
        with torch.no_grad():
            change: Weights = subtract(self.held, start)
        return change


class TrainedBlock(NamedTuple):
    """The results of training a block of clients. A client's result may be read after a `wait` for it."""

    weights: Sequence[Weights]  # of each client, in storage of its own; empty if only updates are needed
    change: Weights  # each tensor has a leading client axis
    steps: np.ndarray  # [clients] int64
    losses: Tensor  # [clients] float64
    sound: np.ndarray  # [clients] bool: whether the solver found no number that is too large for the gate
    wait: Callable[[int | None], None] = lambda _: None  # waits until a client is trained; None: all clients
    controls: Sequence[Control] = ()  # of each client, in storage of its own; empty if not requested
    control_changes: Sequence[Control] = ()  # of each client, computed on access

    def single(self, position: int) -> Trained:
        """The result of the client at `position`."""
        self.wait(position)
        weights, change = self.weights[position] if self.weights else None, row(self.change, position)
        loss, controls = self.losses[position].float(), None
        if self.controls:
            controls = Controls(self.controls[position], self.control_changes[position])
        return Trained(weights, int(self.steps[position]), loss, change=change, controls=controls)

    def together(self) -> Trained:
        """The results of all clients, without weights, for a course that serves a block."""
        self.wait(None)
        controls = None
        if self.controls:
            changes = PerClient(self.control_changes, like=row(self.change, 0).params)
            controls = Controls(PerClient(self.controls), changes)
        steps, losses = int(self.steps.sum()), self.losses.float()
        return Trained(None, steps, losses, change=self.change, controls=controls)
