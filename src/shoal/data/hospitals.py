"""Data sets from several hospitals: natural federations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from shoal.core.data import Dataset
from shoal.core.errors import SpecError
from shoal.data.downloads import FILES
from shoal.data.fetch import fetch_files

HEART_HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")

_COLUMNS = (
    "age",
    "sex",
    "cp",
    "trestbps",
    "chol",
    "fbs",
    "restecg",
    "thalach",
    "exang",
    "oldpeak",
    "slope",
    "ca",
    "thal",
    "num",
)
_CATEGORIES: dict[str, tuple[int, ...]] = {
    "cp": (1, 2, 3, 4),
    "restecg": (0, 1, 2),
    "slope": (1, 2, 3),
    "thal": (3, 6, 7),
}
_NUMBERS = tuple(name for name in _COLUMNS[:-1] if name not in _CATEGORIES)
_NEVER_ZERO = ("trestbps", "chol")  # 0 is impossible in living patients: it stands for "not measured"

HEART_FEATURES = (
    *_NUMBERS,
    *(f"{name}={value}" for name, values in _CATEGORIES.items() for value in values),
)


def heart_disease() -> Dataset:
    """Heart disease in four hospitals: 920 patients, 22 features; each hospital is a natural client.

    Features are the columns of `HEART_FEATURES`. Missing values are '?', -9, and zeros for cholesterol and
    blood pressure. Chest pain, ECG, slope and thal are one-hot encoded, all zeros if missing. The other
    columns are standardised by the mean and standard deviation of the values present in the training rows of
    all hospitals together; a missing value becomes 0, the mean. The label is 1 if the file's diagnosis is
    above 0. Within each hospital and label, every fourth row is for testing, the others are for training.
    """
    tables = [_read(path) for path in fetch_files(FILES["heart_disease"])]
    table = np.concatenate(tables)
    groups = np.repeat(np.arange(len(tables)), [len(rows) for rows in tables])
    labels = (table[:, -1] > 0).astype(np.int64)
    test = _every_fourth(groups * 2 + labels)
    x, y = torch.from_numpy(_features(table, ~test)), torch.from_numpy(labels)
    there = torch.from_numpy(test)
    return Dataset(
        "heart_disease",
        x[~there],
        y[~there],
        x[there],
        y[there],
        classes=2,
        groups_train=groups[~test],
        groups_test=groups[test],
        group_names=HEART_HOSPITALS,
    )


def _read(path: Path) -> np.ndarray:
    """[rows, 14] float64, NaN where a value is missing."""
    rows = [line.split(",") for line in path.read_text("ascii", errors="replace").split()]
    try:
        table = np.array([[np.nan if value == "?" else float(value) for value in row] for row in rows])
        diagnoses = table[:, len(_COLUMNS) - 1]
    except (ValueError, IndexError):  # not numbers, rows of unequal length, or too few columns
        diagnoses = np.array([np.nan])
    if np.isnan(diagnoses).any():
        raise SpecError(
            f"{path} is damaged: not a table of {len(_COLUMNS)} columns; remove it to download it again"
        )
    table[table == -9] = np.nan
    for name in _NEVER_ZERO:
        column = table[:, _COLUMNS.index(name)]
        column[column == 0] = np.nan
    return table


def _every_fourth(strata: np.ndarray) -> np.ndarray:
    """[n] bool: rows 4, 8, 12, ... of each stratum."""
    chosen = np.zeros(len(strata), bool)
    for stratum in np.unique(strata):
        chosen[np.flatnonzero(strata == stratum)[3::4]] = True
    return chosen


def _features(table: np.ndarray, train: np.ndarray) -> np.ndarray:
    """[n, 22] float32, in the order of `HEART_FEATURES`."""
    columns = []
    for name in _NUMBERS:
        values = table[:, _COLUMNS.index(name)]
        present = values[train & ~np.isnan(values)]
        spread = present.std() if present.size else 0.0
        scaled = (values - present.mean()) / spread if spread > 0 else np.zeros_like(values)
        columns.append(np.nan_to_num(scaled, nan=0.0))
    for name, categories in _CATEGORIES.items():
        columns += [table[:, _COLUMNS.index(name)] == value for value in categories]
    return np.stack(columns, axis=1).astype(np.float32)
