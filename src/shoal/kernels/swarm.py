"""Swarms: the motion of particles, and whole runs of linear regression.

The arrays of a swarm are [dimension, problems, particles]: particles are contiguous, for vectorisation, and
so are problems, for a single matrix product. Problems are independent of each other. The random numbers of
an epoch are at a fixed place in the key's stream, so they do not depend on what was drawn before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int64, types, uint64

from shoal.kernels.jit import Index, Word, inner, kernel
from shoal.kernels.philox_blocks import FOLD_INT, fold, reals

FSI, PSO = 0, 1
BLOCK = 1024  # epochs that share a key

_LARGEST = np.finfo(np.float64).max


class SwarmRule(NamedTuple):
    """The update rule of a swarm: its formula and parameters."""

    kind: int
    inertia: float
    first: float  # factor of the first random numbers
    second: float
    patience: int  # epochs without improvement after which the step size is halved
    forgives: bool  # whether an improvement resets the count of failures
    largest: float  # step size


class Flock(NamedTuple):
    """The arrays of a swarm. `advance` and `descend` change them in place."""

    particles: np.ndarray  # the points whose losses are known
    velocities: np.ndarray
    candidates: np.ndarray  # the points to evaluate
    losses: np.ndarray  # [problems, particles]
    step_sizes: np.ndarray  # [problems]
    fails: np.ndarray  # [problems] int64


_CUBE, _PLANE = float64[:, :, ::1], float64[:, ::1]
_NUMBERS = (int64, float64, float64, float64, int64, boolean, float64)
_RULE = types.NamedTuple(_NUMBERS, SwarmRule)  # type: ignore[no-untyped-call]
_ARRAYS = (_CUBE, _CUBE, _CUBE, _PLANE, float64[::1], int64[::1])
_FLOCK = types.NamedTuple(_ARRAYS, Flock)  # type: ignore[no-untyped-call]
_KEY = types.UniTuple(uint64, 2)  # type: ignore[no-untyped-call]


@inner
def _least(losses: np.ndarray) -> Index:
    """The index of the smallest loss; the first of equals."""
    at = 0
    for s in range(1, losses.size):
        if losses[s] < losses[at]:
            at = s
    return at


@inner
def _draw(key: tuple[Word, Word], epoch: Index, which: Index, numbers: np.ndarray) -> None:
    """Draw the numbers in [0, 1) of an epoch: `which` is 0 for the first set and 1 for the second."""
    first, second = fold(key[0], key[1], np.uint64(epoch // BLOCK), FOLD_INT)
    blocks = (numbers.size + 3) // 4
    reals((first, second), (2 * (epoch % BLOCK) + which) * blocks, numbers)


@inner
def _paced(rule: SwarmRule, step: float, fails: Index, better: bool) -> tuple[float, Index]:
    """The step size and the number of failures after an epoch with or without an improvement."""
    if better:
        return min(2 * step, rule.largest), 0 if rule.forgives else fails
    if fails + 1 == rule.patience:
        return step / 2, 0
    return step, fails + 1


@inner
def _fly(
    rule: SwarmRule, step: float, best: float, particles: np.ndarray, velocities: np.ndarray,
    candidates: np.ndarray, r1: np.ndarray, r2: np.ndarray,
) -> None:  # fmt: skip
    """New velocities and candidates of one coordinate. The loops use few arrays, to be vectorised.

    A velocity that overflows becomes 0, and a particle that overflows returns to its best point; otherwise
    they would never become finite again.
    """
    inertia, first, second = rule.inertia, rule.first, rule.second
    if rule.kind == FSI:
        for s in range(particles.size):
            pulled = inertia * velocities[s] + first * r1[s] * (best - particles[s])
            v = step * (pulled + second * (2 * r2[s] - 1))  # eq. 4
            velocities[s] = v if abs(v) <= _LARGEST else 0.0
        for s in range(particles.size):
            candidates[s] = particles[s] + velocities[s]
    else:
        for s in range(particles.size):
            velocities[s] = inertia * velocities[s] + first * r1[s] * (particles[s] - candidates[s])
        for s in range(particles.size):
            v = velocities[s] + second * r2[s] * (best - candidates[s])
            velocities[s] = v if abs(v) <= _LARGEST else 0.0
        for s in range(particles.size):
            x = candidates[s] + velocities[s]
            candidates[s] = x if abs(x) <= _LARGEST else particles[s]


class _Scratch(NamedTuple):
    """Temporary arrays of an epoch."""

    better: np.ndarray  # [problems, particles]
    best: np.ndarray  # [problems] int64
    r1: np.ndarray  # [dimension * problems * particles]
    r2: np.ndarray


@inner
def _scratch(flock: Flock) -> _Scratch:
    better, best = np.empty(flock.losses.shape, np.bool_), np.empty(flock.fails.size, np.int64)
    size = flock.particles.size
    return _Scratch(better, best, np.zeros(size), np.zeros(size))


@inner
def _step(
    rule: SwarmRule, key: tuple[Word, Word], epoch: Index, flock: Flock, known: np.ndarray, new: np.ndarray,
    scratch: _Scratch,
) -> None:  # fmt: skip
    """See `advance`."""
    dimension, problems, particles = flock.particles.shape
    for p in range(problems):
        before, better = known[p, _least(known[p])], scratch.better[p]
        for s in range(particles):
            better[s] = new[p, s] < known[p, s]
            flock.losses[p, s] = new[p, s] if better[s] else known[p, s]
        best = _least(flock.losses[p])
        scratch.best[p] = best
        if epoch and rule.kind == FSI:
            flock.step_sizes[p], flock.fails[p] = _paced(
                rule, flock.step_sizes[p], flock.fails[p], flock.losses[p, best] < before
            )
    if rule.first != 0:
        _draw(key, epoch, 0, scratch.r1)
    if rule.second != 0:
        _draw(key, epoch, 1, scratch.r2)
    for d in range(dimension):
        for p in range(problems):
            row, asked, better = flock.particles[d, p], flock.candidates[d, p], scratch.better[p]
            for s in range(particles):
                row[s] = asked[s] if better[s] else row[s]
            at = (d * problems + p) * particles
            r1, r2 = scratch.r1[at : at + particles], scratch.r2[at : at + particles]
            _fly(rule, flock.step_sizes[p], row[scratch.best[p]], row, flock.velocities[d, p], asked, r1, r2)


@inner
def _check(flock: Flock) -> None:
    """Check the shapes: kernels do not check bounds."""
    shape, (problems, particles) = flock.particles.shape, flock.losses.shape
    if flock.velocities.shape != shape or flock.candidates.shape != shape:
        raise ValueError("particles, velocities and candidates must have one shape")
    if shape[1] != problems or shape[2] != particles or particles < 1:
        raise ValueError("the losses of a flock must be [problems, particles]")
    if flock.step_sizes.size != problems or flock.fails.size != problems:
        raise ValueError("every problem has a step size and a number of failures")


@kernel(types.void(_RULE, _KEY, int64, _FLOCK, _PLANE, _PLANE))
def advance(
    rule: SwarmRule, key: tuple[Word, Word], epoch: int, flock: Flock, known: np.ndarray, new: np.ndarray
) -> None:
    """Process the losses of the candidates, and make the next candidates.

    A particle moves to its candidate if `new` < `known`; then the step size is adapted, except in epoch 0,
    whose candidates are the initial particles; then all particles move. `key` is the key of all blocks.
    """
    _check(flock)
    if known.shape != flock.losses.shape or new.shape != flock.losses.shape:
        raise ValueError("losses must be [problems, particles] as those of the flock are")
    _step(rule, key, epoch, flock, known, new, _scratch(flock))


@inner
def _squares(factor: np.ndarray, points: np.ndarray, row: np.ndarray, losses: np.ndarray) -> None:
    """losses[s] = |factor (points[:, s]; -1)|^2 for a triangular factor, four products at a time."""
    width = len(factor) - 1
    losses[:] = 0.0
    for i in range(width + 1):
        row[:] = -factor[i, width]
        tail = width - (width - i) % 4
        for j in range(i, tail, 4):
            f0, f1, f2, f3 = factor[i, j], factor[i, j + 1], factor[i, j + 2], factor[i, j + 3]
            x0, x1, x2, x3 = points[j], points[j + 1], points[j + 2], points[j + 3]
            for s in range(row.size):
                row[s] = (((row[s] + f0 * x0[s]) + f1 * x1[s]) + f2 * x2[s]) + f3 * x3[s]
        for j in range(max(i, tail), width):
            f0, x0 = factor[i, j], points[j]
            for s in range(row.size):
                row[s] += f0 * x0[s]
        for s in range(row.size):
            losses[s] += row[s] * row[s]


@kernel(float64[::1](_PLANE, _PLANE))
def squares(factor: np.ndarray, points: np.ndarray) -> np.ndarray:
    """[particles]: |factor (point; -1)|^2 for each column of points [dimension, particles]."""
    if factor.shape[0] != factor.shape[1] or factor.shape[0] != points.shape[0] + 1:
        raise ValueError("the factor must be square, with one row more than points have")
    row, losses = np.empty(points.shape[1]), np.empty(points.shape[1])
    _squares(factor, points, row, losses)
    return losses


@kernel(types.void(_RULE, _KEY, int64, int64, _FLOCK, _CUBE, boolean[::1]))
def descend(
    rule: SwarmRule, key: tuple[Word, Word], epoch: int, legs: int, flock: Flock, factors: np.ndarray,
    strange: np.ndarray,
) -> None:  # fmt: skip
    """`legs` epochs of a regression whose clients' losses are `squares(factor, ...)`.

    factors [clients, dimension + 1, dimension + 1] are summed in their order. `strange` marks the clients
    that had a non-finite loss.
    """
    _check(flock)
    size = flock.particles.shape[0] + 1
    if flock.losses.shape[0] != 1 or factors.shape[1:] != (size, size) or strange.size != len(factors):
        raise ValueError("a regression is one problem, with a square factor and a mark for each client")
    particles = flock.losses.shape[1]
    row, losses, total = np.empty(particles), np.empty(particles), np.empty((1, particles))
    scratch, points = _scratch(flock), flock.candidates[:, 0]
    for e in range(epoch, epoch + legs):
        total[:] = 0.0
        for c in range(len(factors)):
            _squares(factors[c], points, row, losses)
            for s in range(particles):
                if abs(losses[s]) <= _LARGEST:
                    total[0, s] += losses[s]
                else:
                    strange[c] = True
                    total[0, s] = np.inf
        _step(rule, key, e, flock, flock.losses, total, scratch)
