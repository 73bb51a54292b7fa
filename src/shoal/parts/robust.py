"""Robust aggregators: steps that a minority of liars cannot move at will.

Each is a pure function of the updates [clients, numbers], and a thin class that names its fields. Krum, the
trimmed mean and the median count all clients alike whatever their samples, and however often they were
drawn: that is what their guarantees are about, and the number of samples is only a claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.core.errors import SpecError
from shoal.parts.gathering import (
    CHUNK,
    Gathered,
    Gathering,
    Outcome,
    check_amount,
    count_of,
    gram,
    shortening,
    squared_distances,
)

# ---- Krum


def krum_scores(squares: Tensor, attackers: int) -> Tensor:
    """[n]: the sum of each row's squared distances to its n - f - 2 nearest others, at least one of them."""
    n = len(squares)
    nearest = max(1, n - attackers - 2)
    return squares.sort(1).values[:, 1 : 1 + nearest].sum(1)  # the first is the distance to itself


def krum_chosen(squares: Tensor, attackers: int, count: int) -> Tensor:
    """[n] float64: 1 / count for the rows with the smallest scores, 0 for the others."""
    best = krum_scores(squares, attackers).sort(stable=True).indices[:count]
    coefficients = torch.zeros(len(squares), dtype=torch.float64)
    coefficients[best] = 1 / len(best)
    return coefficients


def check_krum(name: str, f: float, clients: int) -> None:
    """Krum needs more than 2 f + 2 clients, or no attackers."""
    attackers = count_of(f, clients)
    if attackers and clients <= 2 * attackers + 2:
        raise SpecError(
            f"{name} with f = {f:g} expects {attackers} attackers among {clients} clients a round, but needs "
            f"more than 2 f + 2 = {2 * attackers + 2} clients; let more take part, or lower f"
        )


def bearable(attackers: int, n: int) -> int:
    """How many attackers Krum can expect among n replies: fewer where replies were lost."""
    return max(0, min(attackers, (n - 3) // 2))


@dataclass(frozen=True)
class Krum(Gathering):
    """Takes the update whose nearest neighbours are nearest."""

    f: float = 0.2  # attackers: a number, or a share of the cohort

    def __post_init__(self) -> None:
        check_amount("f", self.f, 0.5)

    def check(self, clients: int) -> None:
        """See `Gathering`."""
        check_krum("krum", self.f, clients)

    def decide(self, state: Any, gathered: Gathered) -> tuple[Any, Outcome]:
        """See `Gathering`."""
        n = len(gathered.ids)
        squares = squared_distances(gram(gathered.rows))
        chosen = krum_chosen(squares, bearable(count_of(self.f, n), n), 1)
        return state, Outcome(gathered.combined(chosen), chosen)


@dataclass(frozen=True)
class MultiKrum(Gathering):
    """The mean of the updates that Krum likes best: all but as many as there are attackers."""

    f: float = 0.2  # attackers: a number, or a share of the cohort
    m: int | None = None  # how many to average; by default n - f

    def __post_init__(self) -> None:
        check_amount("f", self.f, 0.5)
        if self.m is not None and self.m < 1:
            raise SpecError(f"m must be at least 1, got {self.m}; leave it out to average n - f updates")

    def check(self, clients: int) -> None:
        """See `Gathering`."""
        check_krum("multikrum", self.f, clients)

    def decide(self, state: Any, gathered: Gathered) -> tuple[Any, Outcome]:
        """See `Gathering`."""
        n = len(gathered.ids)
        attackers = bearable(count_of(self.f, n), n)
        squares = squared_distances(gram(gathered.rows))
        chosen = krum_chosen(squares, attackers, n - attackers if self.m is None else self.m)
        return state, Outcome(gathered.combined(chosen), chosen)


# ---- coordinate by coordinate


def trimmed(rows: Tensor, trim: int) -> tuple[Tensor, Tensor]:
    """The mean of each column without its `trim` smallest and largest numbers; and in what share of the
    columns each row was kept. Rows that are equal to the last one kept share its place."""
    n, width = rows.shape
    means, kept = np.empty(width), np.zeros(n)
    values = rows.cpu().numpy()
    for first in range(0, width, CHUNK):
        piece = values[:, first : first + CHUNK]
        ordered = np.sort(piece, axis=0)[trim : n - trim]  # ten times as fast as torch's
        means[first : first + CHUNK] = ordered.mean(0, dtype=np.float64)
        inside = (piece >= ordered[0]) & (piece <= ordered[-1])
        kept += (inside / inside.sum(0)).sum(1)
    return torch.from_numpy(means).to(rows.device), torch.from_numpy(kept / width)


@dataclass(frozen=True)
class TrimmedMean(Gathering):
    """The mean of each coordinate without its smallest and largest values."""

    trim: float = 0.2  # values dropped on each side: a number, or a share of the cohort

    def __post_init__(self) -> None:
        check_amount("trim", self.trim, 0.5)

    def check(self, clients: int) -> None:
        """See `Gathering`."""
        dropped = count_of(self.trim, clients)
        if clients <= 2 * dropped:
            raise SpecError(
                f"trimmed_mean with trim = {self.trim:g} drops {2 * dropped} of {clients} clients a round, "
                "which leaves none; let more take part, or lower trim"
            )

    def decide(self, state: Any, gathered: Gathered) -> tuple[Any, Outcome]:
        """See `Gathering`."""
        n = len(gathered.ids)
        return state, Outcome(*trimmed(gathered.rows, min(count_of(self.trim, n), (n - 1) // 2)))


@dataclass(frozen=True)
class Median(Gathering):
    """The median of each coordinate: the mean of the middle two where their number is even."""

    def decide(self, state: Any, gathered: Gathered) -> tuple[Any, Outcome]:
        """See `Gathering`."""
        return state, Outcome(*trimmed(gathered.rows, (len(gathered.ids) - 1) // 2))


# ---- the geometric median

FAR = 1e6  # median lengths: beyond, only the direction of an update is looked at


def weiszfeld(squares: Tensor, weights: Tensor, iterations: int, smoothing: float) -> Tensor:
    """[n] float64: the geometric median's coefficients, from squared distances between the points alone.

    The distance of a point to the current centre `z = sum_j b_j w_j` is
    `||z - w_i||^2 = sum_j b_j d_ij^2 - sum_jk b_j b_k d_jk^2 / 2`, so that an iteration costs nothing.
    """
    shares = weights / weights.sum()
    for _ in range(iterations):
        spread = squares @ shares
        distances = (spread - 0.5 * (shares @ spread)).clamp(min=0).sqrt()
        pulled = weights / distances.clamp(min=smoothing)
        before, shares = shares, pulled / pulled.sum()
        if float((shares - before).abs().sum()) <= 1e-9:
            break
    return shares


@dataclass(frozen=True)
class GeometricMedian(Gathering):
    """The point whose distances to all updates have the smallest sum."""

    iterations: int = 100
    smoothing: float = 1e-5  # distances below count as this

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise SpecError(f"iterations must be at least 1, got {self.iterations}; 100 is usual")
        if not 0 < self.smoothing < torch.inf:
            raise SpecError(f"smoothing must be > 0, got {self.smoothing:g}; 1e-5 is usual")

    def decide(self, state: Any, gathered: Gathered) -> tuple[Any, Outcome]:
        """See `Gathering`."""
        products = gram(gathered.rows)
        norms = products.diagonal().sqrt()
        # how far away a point is makes no difference to the median, but takes digits from all others
        factors = shortening(norms, FAR * float(norms.quantile(0.5)))
        squares = squared_distances(products * factors[:, None] * factors[None, :])
        shares = factors * weiszfeld(squares, gathered.weights, self.iterations, self.smoothing)
        return state, Outcome(gathered.combined(shares), shares)


# ---- norm clipping


def clipped_shares(norms: Tensor, weights: Tensor, clip: float | None) -> Tensor:
    """[n] float64: what each update counts in the mean after those longer than `clip` were shortened to it.

    Without a number it is the median of the norms.
    """
    limit = float(norms.quantile(0.5)) if clip is None else clip
    return weights / weights.sum() * shortening(norms, limit)


@dataclass(frozen=True)
class ClippedMean(Gathering):
    """The mean of updates whose norms are limited."""

    clip: float | None = None  # the longest an update may be; by default the median norm of the round

    def __post_init__(self) -> None:
        if self.clip is not None and not self.clip > 0:
            raise SpecError(f"clip must be > 0, got {self.clip:g}; leave it out for the round's median norm")

    def decide(self, state: Any, gathered: Gathered) -> tuple[Any, Outcome]:
        """See `Gathering`."""
        norms = gram(gathered.rows).diagonal().sqrt()
        shares = clipped_shares(norms, gathered.weights, self.clip)
        return state, Outcome(gathered.combined(shares), shares)
