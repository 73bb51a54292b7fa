"""Data sets, and the partitions that divide their samples among clients."""

from __future__ import annotations

from collections.abc import Callable

from shoal.core.data import Dataset
from shoal.data.bundled import boston, digits, mnist5k
from shoal.data.hospitals import heart_disease
from shoal.data.images import cifar10, cifar100, emnist, fashion_mnist, mnist, svhn
from shoal.data.own import OWN
from shoal.data.partitions import PARTITIONS
from shoal.data.shards import label_matrix

DATASETS: dict[str, Callable[..., Dataset]] = {
    "boston": boston,
    "mnist5k": mnist5k,
    "digits": digits,
    "mnist": mnist,
    "fashion_mnist": fashion_mnist,
    "emnist": emnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "svhn": svhn,
    "heart_disease": heart_disease,
    **OWN,
}

__all__ = ["DATASETS", "OWN", "PARTITIONS", "label_matrix"]
