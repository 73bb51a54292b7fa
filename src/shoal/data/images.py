"""Image data sets, read from the published files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shoal.core.data import Dataset
from shoal.core.errors import SpecError
from shoal.data.downloads import ARCHIVES, FILES
from shoal.data.fetch import fetch_files, fetch_members
from shoal.data.file_formats import read_cifar, read_idx, read_svhn

EmnistSplit = Literal["digits", "letters", "balanced", "byclass", "bymerge", "mnist"]

_EMNIST_CLASSES: dict[EmnistSplit, int] = {
    "digits": 10,
    "letters": 26,
    "balanced": 47,
    "byclass": 62,
    "bymerge": 47,
    "mnist": 10,
}

# Mean and standard deviation of each channel over the training images scaled to [0, 1].
CIFAR10_MEAN, CIFAR10_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CIFAR100_MEAN, CIFAR100_STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
SVHN_MEAN, SVHN_STD = (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)


def mnist() -> Dataset:
    """Handwritten digits: 60,000 + 10,000 grey images of 28 x 28."""
    images, labels, test_images, test_labels = map(read_idx, fetch_files(FILES["mnist"]))
    return Dataset("mnist", _grey(images), _labels(labels), _grey(test_images), _labels(test_labels), 10)


def fashion_mnist() -> Dataset:
    """Pieces of clothing: 60,000 + 10,000 grey images of 28 x 28."""
    images, labels, test_images, test_labels = map(read_idx, fetch_files(FILES["fashion_mnist"]))
    return Dataset(
        "fashion_mnist", _grey(images), _labels(labels), _grey(test_images), _labels(test_labels), 10
    )


def emnist(*, split: EmnistSplit = "digits") -> Dataset:
    """Handwritten digits and letters: grey images of 28 x 28; 280,000 digits, 145,600 letters, or others."""
    if split not in _EMNIST_CLASSES:
        raise SpecError(f"split must be one of {', '.join(_EMNIST_CLASSES)}, got {split}")
    archive = ARCHIVES["emnist"]
    members = tuple(member for member in archive.members if f"emnist-{split}-" in member.name)
    images, labels, test_images, test_labels = map(read_idx, fetch_members(replace(archive, members=members)))
    first = 1 if split == "letters" else 0  # the file numbers letters from 1
    return Dataset(
        "emnist",
        _grey(images.swapaxes(1, 2)),  # the files hold each image transposed
        _labels(labels) - first,
        _grey(test_images.swapaxes(1, 2)),
        _labels(test_labels) - first,
        _EMNIST_CLASSES[split],
    )


def cifar10() -> Dataset:
    """Objects and animals: 50,000 + 10,000 colour images of 32 x 32 in 10 classes."""
    *train, test = (read_cifar(path, labels=1) for path in fetch_members(ARCHIVES["cifar10"]))
    x_train, y_train = (np.concatenate(parts) for parts in zip(*train))
    return Dataset(
        "cifar10",
        _colour(x_train, CIFAR10_MEAN, CIFAR10_STD),
        _labels(y_train[:, 0]),
        _colour(test[0], CIFAR10_MEAN, CIFAR10_STD),
        _labels(test[1][:, 0]),
        10,
    )


def cifar100(*, labels: Literal["fine", "coarse"] = "fine") -> Dataset:
    """Objects and animals: 50,000 + 10,000 colour images of 32 x 32 in 100 fine or 20 coarse classes."""
    if labels not in ("fine", "coarse"):
        raise SpecError(f"labels must be fine or coarse, got {labels}")
    column, classes = (1, 100) if labels == "fine" else (0, 20)
    train, test = (read_cifar(path, labels=2) for path in fetch_members(ARCHIVES["cifar100"]))
    return Dataset(
        "cifar100",
        _colour(train[0], CIFAR100_MEAN, CIFAR100_STD),
        _labels(train[1][:, column]),
        _colour(test[0], CIFAR100_MEAN, CIFAR100_STD),
        _labels(test[1][:, column]),
        classes,
    )


def svhn() -> Dataset:
    """House numbers: 73,257 + 26,032 colour images of 32 x 32, one digit each."""
    train, test = map(read_svhn, fetch_files(FILES["svhn"]))
    return Dataset(
        "svhn",
        _colour(train[0], SVHN_MEAN, SVHN_STD),
        _labels(train[1]),
        _colour(test[0], SVHN_MEAN, SVHN_STD),
        _labels(test[1]),
        10,
    )


def _grey(images: np.ndarray) -> Tensor:
    """[n, h, w] bytes -> [n, 1, h, w] in [0, 1]."""
    return torch.from_numpy(images.astype(np.float32, order="C")).div_(255).unsqueeze(1)


def _colour(images: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """[n, 3, h, w] bytes -> standardised per channel; in place, since a copy of SVHN takes 0.9 GB."""
    x = torch.from_numpy(images.astype(np.float32, order="C")).div_(255)
    return x.sub_(torch.tensor(mean).view(3, 1, 1)).div_(torch.tensor(std).view(3, 1, 1))


def _labels(labels: np.ndarray) -> Tensor:
    return torch.from_numpy(labels.astype(np.int64))
