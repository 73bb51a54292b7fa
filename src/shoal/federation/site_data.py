"""The data of one site: from a file, a data set, or the site's share of the spec's own partition.

`open_source` is the only interface to data for the rest of a federation: it turns the name of a source, and
what the server expects, into the data of one client, or raises a `SpecError` that says what is missing.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.catalogues import DATASET
from shoal.core.client import ClientData
from shoal.core.data import Dataset, Shards
from shoal.core.errors import SpecError
from shoal.core.types import Tree
from shoal.data.client_data import Simulated
from shoal.data.sites import Agreement
from shoal.federation.own_files import agreement_tree, load_own, own_source, read_agreement
from shoal.run_settings import Sites
from shoal.runs.build import Samples, load_and_partition, load_dataset
from shoal.spec import Spec, TaskSpec

SPEC = "spec"  # the source of a simulated federation: the client's share of the spec's partition
SPLIT = "split"  # the column that assigns rows to training or testing
FOURTH = 4  # without that column, every fourth row of a class is for testing


class Expected(NamedTuple):
    """The properties of the samples that a server expects."""

    name: str  # of the data set
    shape: Sequence[int]
    dtype: str
    classes: int
    columns: Sequence[str] = ()  # of a table, in the order of the features
    label: str = ""  # the label column
    labels: Sequence[str] = ()  # the classes by name; empty: they are numbers from 0
    min_samples: int = 1
    agreement: Tree = None  # the common encoding, if the sites use files of a kind named in the spec

    def samples(self) -> Samples:
        """The properties of samples on which a model depends."""
        return Samples(self.name, tuple(self.shape), getattr(torch, self.dtype), self.classes)


def expected_of(spec: Spec, agreed: Agreement | None = None) -> Expected:
    """What is expected of a site: by the agreement, the spec's `[sites]`, or the format of its data set."""
    sites = spec.sites
    if agreed is not None:
        classes, tree = len(agreed.classes), agreement_tree(agreed)
        return Expected(spec.task.dataset, agreed.shape, "float32", classes, agreement=tree)
    if sites is None or not sites.columns:
        found = Samples.of(load_dataset(spec.task))
        least = 1 if sites is None else sites.min_samples
        dtype = str(found.dtype).removeprefix("torch.")
        return Expected(found.name, found.shape, dtype, found.classes, min_samples=least)
    return expected_table(spec.task.dataset, sites)


def expected_table(name: str, sites: Sites) -> Expected:
    """What `[sites]` expects."""
    classes = len(sites.classes)
    shape = (len(sites.columns),)
    return Expected(
        name, shape, "float32", classes, sites.columns, sites.label, sites.classes, sites.min_samples
    )


def open_source(source: str, spec: Spec, expected: Expected, client: int) -> tuple[ClientData, int]:
    """The data of a client, and its number of training samples."""
    key = spec.seeds.key("partition", spec.seed).fold("holdings")
    if source == SPEC:
        dataset, shards = load_and_partition(spec)
        if client >= len(shards):
            raise SpecError(f"the spec's partition has {len(shards)} clients; there is no client {client}")
        return Simulated(dataset, shards, key), shards.count(client)
    if expected.agreement is not None:
        dataset = load_own(
            own_source(spec.task, spec.task.dataset, source),
            read_agreement(expected.agreement),
            expected.min_samples,
        )
    else:
        dataset = _opened(source, expected)
    _check(dataset, expected)
    count = len(dataset.y_train)
    return Simulated(dataset, OwnShards(client, count), key), count


@dataclass(frozen=True)
class OwnShards(Shards):
    """The samples of the only local client."""

    client: int
    samples: int

    def __len__(self) -> int:
        return self.client + 1

    def indices(self, client: int) -> np.ndarray:
        """All rows."""
        return np.arange(self.samples)

    def count(self, client: int) -> int:
        """The number of rows."""
        return self.samples


def _opened(source: str, expected: Expected) -> Dataset:
    if source.endswith(".csv"):
        return read_table(Path(source), expected)
    name, _, group = source.partition("/")
    if name not in DATASET.entries and ":" not in name:
        raise SpecError(
            f"--data {source!r} is neither a CSV file nor a data set; `shoal datasets` lists those"
        )
    dataset = load_dataset(TaskSpec(dataset=name))
    return _group(dataset, group) if group else _alone(dataset, slice(None), slice(None))


def _group(dataset: Dataset, group: str) -> Dataset:
    """The samples of one of the institutions from which a data set comes."""
    if group not in dataset.group_names or dataset.groups_train is None or dataset.groups_test is None:
        known = ", ".join(dataset.group_names) or "none"
        raise SpecError(f"{dataset.name} has no part {group!r}; its parts are: {known}")
    number = list(dataset.group_names).index(group)
    parts = (np.flatnonzero(groups == number) for groups in (dataset.groups_train, dataset.groups_test))
    return _alone(dataset, *(torch.from_numpy(rows) for rows in parts))


def _alone(dataset: Dataset, train: Tensor | slice, test: Tensor | slice) -> Dataset:
    """A data set of one institution, which is tested on its own samples."""
    y_train, y_test = dataset.y_train[train], dataset.y_test[test]
    return Dataset(
        dataset.name,
        dataset.x_train[train],
        y_train,
        dataset.x_test[test],
        y_test,
        dataset.classes,
        np.zeros(len(y_train), np.int64),
        np.zeros(len(y_test), np.int64),
    )


def read_table(path: Path, expected: Expected) -> Dataset:
    """The rows of a CSV file with a header."""
    if not expected.columns:
        raise SpecError("a CSV file needs columns by name; the server's spec has no table [sites]")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SpecError(f"{path} cannot be read: {error}") from None
    header = rows[0].keys() if rows else []
    missing = [name for name in (*expected.columns, expected.label) if name not in header]
    if missing:
        raise SpecError(f"{path.name} has no column {', '.join(missing)}")
    x = torch.tensor([[_number(path, i, row, n) for n in expected.columns] for i, row in enumerate(rows)])
    if expected.classes:
        y = torch.tensor([_class(path, i, row[expected.label], expected) for i, row in enumerate(rows)])
    else:
        y = torch.tensor([_number(path, i, row, expected.label) for i, row in enumerate(rows)])
    test = _test_rows([row.get(SPLIT, "") for row in rows], y)
    dataset = Dataset(expected.name, x[~test], y[~test], x[test], y[test], expected.classes)
    return _alone(dataset, slice(None), slice(None))


def _number(path: Path, row: int, values: dict[str, str], column: str) -> float:
    try:
        return float(values[column])
    except (TypeError, ValueError):
        text = values[column]
        raise SpecError(f"{path.name}, line {row + 2}: {column} is not a number: {text!r}") from None


def _class(path: Path, row: int, text: str, expected: Expected) -> int:
    if text not in expected.labels:
        known = ", ".join(expected.labels)
        raise SpecError(
            f"{path.name}, line {row + 2}: the class {text!r} is unknown; the server's are {known}"
        )
    return list(expected.labels).index(text)


def _test_rows(split: Sequence[str], y: Tensor) -> Tensor:
    """[n] bool: the rows for testing, given by the column `split` if there is one."""
    if any(split):
        return torch.tensor([text == "test" for text in split])
    labels = y if y.dtype == torch.int64 else torch.zeros(len(y), dtype=torch.int64)
    chosen = torch.zeros(len(y), dtype=torch.bool)
    for label in set(labels.tolist()):
        chosen[(labels == label).nonzero().flatten()[FOURTH - 1 :: FOURTH]] = True
    return chosen


def _check(dataset: Dataset, expected: Expected) -> None:
    """Raise `SpecError` if the samples are not as the server expects."""
    shape, dtype = tuple(expected.shape), str(dataset.x_train.dtype).removeprefix("torch.")
    if dataset.shape != shape:
        raise SpecError(f"its samples have the shape {dataset.shape}, the server expects {shape}")
    if dtype != expected.dtype:
        raise SpecError(f"its samples are {dtype}, the server expects {expected.dtype}")
    if dataset.classes != expected.classes:
        raise SpecError(f"its data have {dataset.classes} classes, the server expects {expected.classes}")
    if len(dataset.y_train) < expected.min_samples:
        raise SpecError(
            f"it holds {len(dataset.y_train)} samples for training, fewer than {expected.min_samples}"
        )
