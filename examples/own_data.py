"""A data set and a model of your own: digits from four scanners, each with its own contrast.

A spec names them as `examples.own_data:load` and `examples.own_data:net`. What follows the star in a
function's signature becomes a field of the spec's [task] table.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from shoal import Dataset

SCANNERS = ("plain", "faint", "harsh", "dark")


def load(*, shift: float = 1.0) -> Dataset:
    """The 1,797 digits of scikit-learn. `shift` says how much the scanners differ: 0 not at all."""
    images, labels = load_digits(return_X_y=True)
    images, site = images / 16, np.arange(len(labels)) % len(SCANNERS)
    scale = 1 + shift * np.array([0.0, -0.8, 2.0, 0.0])
    level = shift * np.array([0.0, 0.0, 0.0, 2.0])
    x = torch.from_numpy((images * scale[site, None] + level[site, None]).astype(np.float32))
    y = torch.from_numpy(labels.astype(np.int64))
    test = np.arange(len(labels)) // len(SCANNERS) % 5 == 4  # every fifth digit of each scanner
    return Dataset(
        "scanners",
        x[~test],
        y[~test],
        x[test],
        y[test],
        classes=10,
        groups_train=site[~test],  # the natural client of each sample
        groups_test=site[test],
        group_names=SCANNERS,
    )


def net(shape: tuple[int, ...], classes: int, *, hidden: int = 32) -> nn.Module:
    """One hidden layer with BatchNorm. `shape` is that of one sample, without the batch axis."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(int(np.prod(shape)), hidden),
        nn.BatchNorm1d(hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )
