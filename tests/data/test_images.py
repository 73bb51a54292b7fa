from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch

from shoal.core.errors import SpecError
from shoal.data import images
from shoal.data.file_formats import read_cifar, read_idx, read_svhn

MEAN = {name: torch.tensor(getattr(images, f"{name}_MEAN")) for name in ("CIFAR10", "CIFAR100", "SVHN")}
STD = {name: torch.tensor(getattr(images, f"{name}_STD")) for name in ("CIFAR10", "CIFAR100", "SVHN")}


def standardised(name, pixels):
    x = torch.from_numpy(pixels.astype(np.float32)) / 255
    return (x - MEAN[name].view(3, 1, 1)) / STD[name].view(3, 1, 1)


def test_mnist(real, publisher):
    published = real("mnist", lambda: publisher.grey("mnist", train=600, test=100))
    dataset = images.mnist()
    assert dataset.shape == (1, 28, 28)
    assert (len(dataset.y_train), len(dataset.y_test)) == ((60000, 10000) if published else (600, 100))
    assert dataset.classes == 10
    assert (dataset.x_train.min(), dataset.x_train.max()) == (0, 1)
    assert dataset.y_train.dtype == torch.int64
    assert torch.bincount(dataset.y_train).numel() == 10


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_idx_images_keep_their_order(publisher, name):
    x_train, y_train, x_test, y_test = publisher.grey(name)
    dataset = getattr(images, name)()
    assert dataset.name == name
    assert np.array_equal(dataset.x_train[:, 0].numpy(), x_train.astype(np.float32) / 255)
    assert np.array_equal(dataset.x_test[:, 0].numpy(), x_test.astype(np.float32) / 255)
    assert dataset.y_train.tolist() == y_train.tolist()
    assert dataset.y_test.tolist() == y_test.tolist()


@pytest.mark.parametrize(
    ("split", "first", "classes"), [("digits", 0, 10), ("letters", 1, 26), ("byclass", 0, 62)]
)
def test_emnist_is_turned_upright(publisher, split, first, classes):
    from_file, labels = publisher.bytes(6, 28, 28), np.arange(6, dtype=np.uint8) + first

    def content(path):
        array = from_file if "images" in path else labels
        return gzip.compress(
            bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()
        )

    parts = ("train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1")
    paths = [f"emnist/emnist-{split}-{part}-ubyte.gz" for part in parts]
    publisher.members("emnist", {path: content(path) for path in paths})
    dataset = images.emnist(split=split)
    assert dataset.classes == classes
    assert dataset.y_train.tolist() == dataset.y_test.tolist() == list(range(6))
    upright = from_file.swapaxes(1, 2).astype(np.float32) / 255
    assert np.array_equal(dataset.x_train[:, 0].numpy(), upright)
    assert dataset.x_test.is_contiguous()


def test_cifar10(publisher):
    records = [publisher.bytes(4, 3073) for _ in range(6)]
    for number, batch in enumerate(records):
        batch[:, 0] = number
    names = [f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)]
    names.append("cifar-10-batches-bin/test_batch.bin")
    publisher.members("cifar10", {name: batch.tobytes() for name, batch in zip(names, records)})
    dataset = images.cifar10()
    assert dataset.classes == 10
    assert dataset.shape == (3, 32, 32)
    assert dataset.y_train.tolist() == [i for i in range(5) for _ in range(4)]
    assert dataset.y_test.tolist() == [5] * 4
    pixels = np.concatenate(records[:5])[:, 1:].reshape(-1, 3, 32, 32)
    torch.testing.assert_close(dataset.x_train, standardised("CIFAR10", pixels))


@pytest.mark.parametrize(("labels", "column", "classes"), [("coarse", 0, 20), ("fine", 1, 100)])
def test_cifar100(publisher, labels, column, classes):
    train, test = publisher.bytes(5, 3074, high=20), publisher.bytes(3, 3074, high=20)
    publisher.members(
        "cifar100",
        {"cifar-100-binary/train.bin": train.tobytes(), "cifar-100-binary/test.bin": test.tobytes()},
    )
    dataset = images.cifar100(labels=labels)
    assert dataset.classes == classes
    assert dataset.y_train.tolist() == train[:, column].tolist()
    assert dataset.y_test.tolist() == test[:, column].tolist()
    torch.testing.assert_close(dataset.x_test, standardised("CIFAR100", test[:, 2:].reshape(-1, 3, 32, 32)))


def test_svhn(publisher):
    pixels = publisher.bytes(32, 32, 3, 4)
    publisher.house_numbers(pixels, np.array([[10], [1], [9], [2]], np.uint8))
    dataset = images.svhn()
    assert dataset.classes == 10
    assert dataset.y_train.tolist() == [0, 1, 9, 2]
    torch.testing.assert_close(dataset.x_train, standardised("SVHN", pixels.transpose(3, 2, 0, 1)))


def test_options_are_checked():
    with pytest.raises(SpecError, match=r"split must be one of digits, letters, .*, got cyrillic"):
        images.emnist(split="cyrillic")
    with pytest.raises(SpecError, match="labels must be fine or coarse, got rough"):
        images.cifar100(labels="rough")


def test_a_data_set_that_is_not_there(data, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    file = images.FILES["svhn"][0]
    offline = (type(file)(file.path, "http://127.0.0.1:9/train_32x32.mat", file.hash),)
    monkeypatch.setitem(images.FILES, "svhn", offline)
    with pytest.raises(
        SpecError, match=f"{file.path}: missing; needs {file.hash} from http://127.0.0.1:9"
    ) as error:
        images.svhn()
    assert str(data) in str(error.value)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it starts with"),
        (b"no gzip", "Not a gzipped file"),
        (gzip.compress(b"\0\0\x08\1\0\0\0\4abc"), r"header says \(4,\), but 3 bytes follow"),
        (gzip.compress(b"\0\0\x0d\1\0\0\0\0"), "it starts with 00000d"),
        (gzip.compress(b"\0\0\x08\1\0\0\0\4abcd")[:-9], "end-of-stream"),
    ],
    ids=["empty", "no gzip", "short", "no bytes", "cut"],  # the bytes hold the time they were made at
)
def test_damaged_idx(tmp_path, content, why):
    (tmp_path / "x.gz").write_bytes(content)
    with pytest.raises(SpecError, match=f"x.gz is damaged: .*{why}.*; remove it"):
        read_idx(tmp_path / "x.gz")


def test_damaged_records(tmp_path):
    (tmp_path / "x").write_bytes(bytes(3074))
    assert read_cifar(tmp_path / "x", labels=2)[0].shape == (1, 3, 32, 32)
    with pytest.raises(SpecError, match="3074 bytes are not a multiple of a record's 3073"):
        read_cifar(tmp_path / "x", labels=1)
    with pytest.raises(SpecError, match="x is damaged"):
        read_svhn(tmp_path / "x")
