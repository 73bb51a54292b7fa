"""The server state of swarm methods, and its conversion to and from the kernels' arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.threads import parallel_ranges
from shoal.core.tree import all_finite
from shoal.kernels.swarm import Flock
from shoal.parts.landscape import Landscape


class SwarmState(NamedTuple):
    """The server state. Points are [dimension, problems, particles] float64."""

    particles: Tensor  # the points whose losses are known
    velocities: Tensor
    candidates: Tensor  # the points to evaluate next
    losses: Tensor  # [problems, particles] float64: of the particles, summed over the samples of `clients`
    step_sizes: Tensor  # [problems] float64
    fails: Tensor  # [problems] int64
    epoch: int  # the number of moves so far
    words: tuple[int, int]  # of the key for all random numbers
    shapes: Mapping[str, tuple[int, ...]]  # of the model's parameters
    clients: tuple[int, ...]  # the clients that the losses are from
    samples: float  # their total number of samples
    nonfinite: tuple[int, ...]  # clients that have sent a loss that is not finite


def finite_or_infinite(losses: Tensor) -> Tensor:
    """The losses with values that are not finite set to infinity, so that their particles cannot win."""
    return torch.where(losses.isfinite(), losses, math.inf)


def candidate_losses(
    lands: list[Landscape], flock: Flock, strange: np.ndarray, counts: np.ndarray, threads: int
) -> np.ndarray:
    """[problems, particles]: the candidates' losses; clients run in threads, sums are in fixed order."""
    points, found = torch.from_numpy(flock.candidates), [torch.empty(0)] * len(lands)

    def some(first: int, last: int) -> None:
        for i in range(first, last):
            found[i] = lands[i].losses(points)

    parallel_ranges(counts, threads, some, len(lands))
    total = np.zeros_like(flock.losses)
    for i, losses in enumerate(found):
        strange[i] |= not all_finite(losses)
        total += finite_or_infinite(losses).numpy()
    return total


def with_nonfinite(state: SwarmState, nonfinite: Sequence[int]) -> SwarmState:
    """The state with more clients that have sent a loss that is not finite."""
    return state._replace(nonfinite=tuple(sorted({*state.nonfinite, *nonfinite})))


def words_of(state: SwarmState) -> tuple[np.uint64, np.uint64]:
    """The key of all random numbers, in the form that the kernels take."""
    return np.uint64(state.words[0]), np.uint64(state.words[1])


def as_flock(state: SwarmState) -> Flock:
    """Copies of the state's arrays, to be changed in place."""
    return Flock(*(getattr(state, name).clone().numpy() for name in Flock._fields))


def with_flock(state: SwarmState, flock: Flock, epochs: int) -> SwarmState:
    """The state with these arrays, after `epochs` more epochs."""
    arrays = {name: torch.from_numpy(value) for name, value in flock._asdict().items()}
    return SwarmState(**state._asdict() | arrays | {"epoch": state.epoch + epochs})
