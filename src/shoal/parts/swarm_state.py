"""What a swarm's server remembers, and how it becomes the arrays of the kernels and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.tree import all_finite
from shoal.kernels.swarm import Flock
from shoal.parts.landscape import Landscape
from shoal.solver.compiled import in_threads


class SwarmState(NamedTuple):
    """What the server remembers. Points are [dimension, problems, particles] float64."""

    particles: Tensor  # the points whose losses are known
    velocities: Tensor
    candidates: Tensor  # the points that are sent next
    losses: Tensor  # [problems, particles] float64, of the particles: sums over the samples of `clients`
    step_sizes: Tensor  # [problems] float64
    fails: Tensor  # [problems] int64
    epoch: int  # how often the swarm has moved
    words: tuple[int, int]  # of the key of all random numbers
    shapes: Mapping[str, tuple[int, ...]]  # the model's parameters
    clients: tuple[int, ...]  # who gave the losses
    samples: float  # that they have
    nonfinite: tuple[int, ...]  # clients that ever sent a loss that is no number


def counted(losses: Tensor) -> Tensor:
    """A loss that is no number, or no finite one, counts as infinite: its particle cannot win."""
    return torch.where(losses.isfinite(), losses, math.inf)


def judged(
    lands: list[Landscape], flock: Flock, strange: np.ndarray, counts: np.ndarray, threads: int
) -> np.ndarray:
    """[problems, particles]: the candidates' losses, clients side by side in threads, summed in order."""
    points, found = torch.from_numpy(flock.candidates), [torch.empty(0)] * len(lands)

    def some(first: int, last: int) -> None:
        for i in range(first, last):
            found[i] = lands[i].losses(points)

    in_threads(counts, threads, some, len(lands))
    total = np.zeros_like(flock.losses)
    for i, losses in enumerate(found):
        strange[i] |= not all_finite(losses)
        total += counted(losses).numpy()
    return total


def noted(state: SwarmState, nonfinite: Sequence[int]) -> SwarmState:
    """With more clients that sent a loss that is no number."""
    return state._replace(nonfinite=tuple(sorted({*state.nonfinite, *nonfinite})))


def words_of(state: SwarmState) -> tuple[np.uint64, np.uint64]:
    """The key of all random numbers, as kernels take it."""
    return np.uint64(state.words[0]), np.uint64(state.words[1])


def copied(state: SwarmState) -> Flock:
    """The arrays of the state, to be changed."""
    return Flock(*(getattr(state, name).clone().numpy() for name in Flock._fields))


def after(state: SwarmState, flock: Flock, epochs: int) -> SwarmState:
    """The state with these arrays, so many epochs later."""
    arrays = {name: torch.from_numpy(value) for name, value in flock._asdict().items()}
    return SwarmState(**state._asdict() | arrays | {"epoch": state.epoch + epochs})
