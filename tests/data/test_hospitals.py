from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from shoal.core.errors import SpecError
from shoal.data.downloads import FILES
from shoal.data.fetch import data_folder
from shoal.data.hospitals import HEART_FEATURES, HEART_HOSPITALS, heart_disease


def diagnoses(path: Path) -> list[int]:
    with path.open() as stream:
        return [int(float(row[-1]) > 0) for row in csv.reader(stream)]


def test_each_hospital_is_split_alike(real, publisher):
    published = real("heart_disease", publisher.hospitals)
    dataset = heart_disease()
    assert dataset.shape == (len(HEART_FEATURES),) == (22,)
    assert dataset.classes == 2
    assert dataset.group_names == HEART_HOSPITALS
    assert dataset.x_train.dtype == torch.float32
    assert dataset.groups_train.dtype == np.int64
    assert torch.isfinite(dataset.x_train).all()
    for hospital, file in enumerate(FILES["heart_disease"]):
        total = Counter(diagnoses(data_folder() / file.path))
        train = Counter(dataset.y_train[dataset.groups_train == hospital].tolist())
        test = Counter(dataset.y_test[dataset.groups_test == hospital].tolist())
        assert test == Counter({label: count // 4 for label, count in total.items()})
        assert train == total - test
    if published:
        assert np.bincount(dataset.groups_train).tolist() == [228, 221, 93, 151]
        assert np.bincount(dataset.groups_test).tolist() == [75, 73, 30, 49]


def test_features_by_hand(publisher):
    publisher.hospitals(rows=5)  # the fourth row, of the label 0, is for testing
    dataset = heart_disease()
    assert dataset.y_train.tolist() == [0, 0, 0, 1] * 4
    assert dataset.y_test.tolist() == [0] * 4
    column = {name: dataset.x_train[:4, i].tolist() for i, name in enumerate(HEART_FEATURES)}
    age = np.array([50, 60, 70, 40])
    assert column["age"] == pytest.approx((age - 55) / age.std())
    pressure = np.array([120, 140, 140, 160])  # 0 is missing, and becomes the mean
    assert column["trestbps"] == pytest.approx((pressure - 140) / np.std([120, 140, 160]))
    assert column["chol"] == pytest.approx([-1, 0, 0, 1])  # 200, 0, ?, 300
    assert column["ca"] == pytest.approx([-1, 0, 0, 1])  # 0, ?, ?, 2: here 0 is a number
    assert column["thalach"][1] == 0  # -9
    assert [column[f"cp={value}"] for value in (1, 2, 3, 4)] == [
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [0] * 4,
        [0, 0, 1, 1],
    ]
    assert [column[f"restecg={value}"] for value in (0, 1, 2)] == [[1, 0, 0, 1], [0, 1, 0, 0], [0] * 4]
    assert [column[f"slope={value}"] for value in (1, 2, 3)] == [[1, 0, 0, 1], [0] * 4, [0, 0, 1, 0]]
    assert [column[f"thal={value}"] for value in (3, 6, 7)] == [[1, 0, 0, 0], [0] * 4, [0, 0, 1, 1]]
    tested = dict(zip(HEART_FEATURES, dataset.x_test[0].tolist()))
    assert tested["chol"] == pytest.approx((400 - 250) / 50)  # by the training rows
    assert tested["oldpeak"] == 0


def test_a_column_without_values_is_zero(publisher):
    publisher.files("heart_disease", [b"50,1,1,0,0,?,?,?,?,?,?,?,?,0\n60,1,1,0,0,?,?,?,?,?,?,?,?,1\n"] * 4)
    dataset = heart_disease()
    assert torch.isfinite(dataset.x_train).all()
    assert dataset.x_train[:, HEART_FEATURES.index("chol")].abs().sum() == 0
    assert dataset.x_test.shape == (0, 22)


@pytest.mark.parametrize("content", [b"", b"1,2,3\n", b"1,2,3\n1,2\n", b"50,1,1,0,0,?,?,?,?,?,?,?,?,?\n"])
def test_damaged_tables(publisher, content):
    publisher.files("heart_disease", [content] * 4)
    with pytest.raises(SpecError, match=r"processed.cleveland.data is damaged"):
        heart_disease()
