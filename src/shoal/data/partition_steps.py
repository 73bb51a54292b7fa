"""Steps and checks that several partitions share."""

from __future__ import annotations

import math

import numpy as np

from shoal.core.data import Dataset, Shards
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.data.class_counts import owners
from shoal.data.shards import DealtShards


def by_counts(labels: np.ndarray, counts: np.ndarray, key: Key) -> Shards:
    """Give each client `counts` [clients, classes] random samples of each class."""
    owner = owners(labels, counts, key.fold("owners").numpy())
    return DealtShards.by_owner(owner, len(counts), key.fold("order"))


def labels_of(dataset: Dataset) -> np.ndarray:
    """[n] int64: the labels of the training samples."""
    labels: np.ndarray = dataset.y_train.numpy()
    return labels


def class_sizes(dataset: Dataset, kind: str) -> np.ndarray:
    """[classes] int64: the number of training samples per class; raises `SpecError` for a regression."""
    if not dataset.classes:
        raise SpecError(f"{kind} needs class labels, but {dataset.name} is a regression; use iid or quantity")
    return np.bincount(labels_of(dataset), minlength=dataset.classes)


def at_least(name: str, value: int, least: int) -> None:
    """Raise `SpecError` if the value is below `least`."""
    if value < least:
        raise SpecError(f"{name} must be at least {least}, got {value}")


def positive(beta: float, effect: str) -> None:
    """Raise `SpecError` if `beta` is not a valid parameter of a Dirichlet distribution."""
    if not 0 < beta < math.inf:
        raise SpecError(f"beta must be > 0, got {beta:g}; small values such as 0.1 {effect}")


def enough(dataset: Dataset, count: int, clients: int, min_size: int = 1) -> None:
    """Raise `SpecError` if there are fewer than `min_size` samples per client."""
    if min_size * clients <= count:
        return
    if clients > count:
        raise SpecError(
            f"{clients} clients are more than the {count} training samples of {dataset.name}; "
            f"use at most {count}, or the synthetic partition, which draws with replacement"
        )
    raise SpecError(
        f"min_size = {min_size} for {clients} clients needs {min_size * clients} training samples, but "
        f"{dataset.name} has {count}; use min_size = {count // clients} or fewer clients"
    )


def check_shards(name: str, classes: int, clients: int, total: int, where: str) -> None:
    """Raise `SpecError` if `clients` with `classes` classes each cannot cover `total` classes."""
    if classes > total:
        raise SpecError(f"{name} must be at most the {total} of {where}, got {classes}")
    if clients * classes < total:
        raise SpecError(
            f"{clients} clients with {classes} classes each cannot hold the {total} classes of "
            f"{where}; use at least {-(-total // classes)} clients"
        )
