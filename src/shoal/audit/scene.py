"""The context that all attacks of an audit share, and the evaluation of each attack."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from torch import Tensor

from shoal.audit.measures import labels_found, matched, mean_psnr, psnr
from shoal.audit.observation import Reconstruction
from shoal.audit.wiretap import Victim
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.solver.sgd import Sgd

DIGITS = 4  # decimals of the pixel values kept for the picture


class Scene(NamedTuple):
    """The context that is the same for all victims."""

    task: Task
    shape: tuple[int, ...]  # of one sample
    solver: Sgd | None  # how clients train; None if they do not
    lossy: bool  # whether the codec or the method cuts something off
    key: Key
    low: float  # the range of the values of a sample
    high: float


class Attempt(NamedTuple):
    """The evaluated result of an attack on one victim."""

    x: Tensor  # in the order of the originals
    psnrs: list[float]
    labels: float | None  # the share found; None if the attack looks for none
    seconds: float


def attempt(scene: Scene, victim: Victim, attack: Callable[..., Reconstruction], *given: Any) -> Attempt:
    """Call `attack(scene, victim, *given)` and evaluate its result."""
    started = time.perf_counter()
    found = attack(scene, victim, *given)
    seconds = time.perf_counter() - started
    x, y = victim.data.all
    rebuilt = matched(x, found.x)
    values = [psnr(one, other, scene.low, scene.high) for one, other in zip(x, rebuilt, strict=True)]
    return Attempt(rebuilt, values, labels_found(y.tolist(), found.labels) if found.labels else None, seconds)


def judged(scene: Scene, attempts: Sequence[Attempt]) -> dict[str, Any] | None:
    """Summarise all attempts of one attacker as plain data; None if there are none."""
    if not attempts:
        return None
    shares = [one.labels for one in attempts if one.labels is not None]
    values = [value for one in attempts for value in one.psnrs]
    return {
        "psnr": mean_psnr(values),
        "psnrs": values,
        "labels": fmean(shares) if shares else None,
        "seconds": sum(one.seconds for one in attempts) / len(values),
        "images": [pixels(scene, one.x) for one in attempts],
    }


def pixels(scene: Scene, x: Tensor) -> list[list[float]]:
    """The values of samples [n, ...], scaled to [0, 1] and rounded."""
    scaled = ((x.double() - scene.low) / (scene.high - scene.low)).clamp(0, 1)
    return [[round(value, DIGITS) for value in sample.flatten().tolist()] for sample in scaled]
