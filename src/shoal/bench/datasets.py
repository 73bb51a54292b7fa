"""Data sets of benchmarks, whose labels need not mean anything."""

from __future__ import annotations

from dataclasses import replace

import torch

from shoal.core.data import Dataset
from shoal.core.key import Key
from shoal.data.bundled import mnist5k


def mnist5k_whole() -> Dataset:
    """All 5,000 digits of mnist5k train, so that 100 clients get 50 each; it is tested on some of these."""
    digits = mnist5k()
    x, y = torch.cat([digits.x_train, digits.x_test]), torch.cat([digits.y_train, digits.y_test])
    return replace(digits, name="mnist5k_whole", x_train=x, y_train=y)


def noise_images(*, count: int = 10_000, channels: int = 3, side: int = 32) -> Dataset:
    """Images of independent uniform pixels, with random labels of ten classes."""
    key = Key.from_seed(0).fold("noise images")
    x = key.fold("x").uniform((count, channels, side, side))
    y = torch.from_numpy(key.fold("y").numpy().integers(10, size=count))
    return Dataset("noise_images", x, y, x[:100], y[:100], classes=10)
