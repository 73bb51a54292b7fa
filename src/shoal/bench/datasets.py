"""Data sets for benchmarks, whose labels need not be meaningful."""

from __future__ import annotations

from dataclasses import replace

import torch

from shoal.core.data import Dataset
from shoal.core.key import Key
from shoal.data.bundled import mnist5k


def mnist5k_whole() -> Dataset:
    """All 5,000 digits of mnist5k for training, 50 for each of 100 clients; some also serve for testing."""
    digits = mnist5k()
    x, y = torch.cat([digits.x_train, digits.x_test]), torch.cat([digits.y_train, digits.y_test])
    return replace(digits, name="mnist5k_whole", x_train=x, y_train=y)


def noise_images(*, count: int = 10_000, channels: int = 3, side: int = 32) -> Dataset:
    """Images of independent uniform pixels, with random labels from ten classes."""
    key = Key.from_seed(0).fold("noise images")
    x = key.fold("x").uniform((count, channels, side, side))
    y = torch.from_numpy(key.fold("y").numpy().integers(10, size=count))
    return Dataset("noise_images", x, y, x[:100], y[:100], classes=10)
