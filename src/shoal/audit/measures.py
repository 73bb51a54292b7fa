"""Measures of how close reconstructions are to the originals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

PERFECT = 100.0  # dB; larger values count as this one in means


def psnr(original: Tensor, rebuilt: Tensor, low: float = 0.0, high: float = 1.0) -> float:
    """The peak signal-to-noise ratio in dB, of values clipped to [low, high]; infinite for equal ones."""
    error = (rebuilt.double().clamp(low, high) - original.double()).square().mean()
    return math.inf if error == 0 else float(10 * torch.log10((high - low) ** 2 / error))


def mean_psnr(values: Sequence[float]) -> float:
    """The mean, with values capped at `PERFECT`."""
    return fmean(min(value, PERFECT) for value in values)


def matched(originals: Tensor, rebuilt: Tensor) -> Tensor:
    """The reconstructions [n, ...] in the order of the originals, by the assignment of least distance."""
    gaps = torch.cdist(originals.double().flatten(1), rebuilt.double().flatten(1)).square()
    _, order = linear_sum_assignment(gaps.numpy())
    return rebuilt[torch.from_numpy(order)]


def labels_found(true: Sequence[int], found: Sequence[int]) -> float:
    """The share of the labels that were found, in any order."""
    return (Counter(true) & Counter(found)).total() / len(true)
