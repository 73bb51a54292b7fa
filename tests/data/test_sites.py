"""Data of one's own: what a site tells, what all agree on, and what a simulation loads."""

import gzip
import subprocess
import sys

import numpy as np
import pytest
import torch

import shoal
from shoal import SpecError
from shoal.core.key import Key
from shoal.data.own import csv, images, npz, parquet
from shoal.data.partitions import Natural
from shoal.data.sites import Agreement, CsvFile, SiteOptions, SiteSource, agree
from shoal.data.sites.source import allocate
from shoal.data.sites.survey import Split, Sums

OPTIONS = SiteOptions("sick", categories=("ward",), test=0)
NORTH = "age,ward,sick\n30,1,no\n50,2,yes\n,1,no\n40,1,yes\n50,2,no\n"
SOUTH = "sick,age,ward\nyes,70,3\nno,?,1\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "north.csv").write_text(NORTH)
    (tmp_path / "south.csv").write_text(SOUTH)
    return tmp_path


def sites(folder):
    return [SiteSource(name, (CsvFile(folder / f"{name}.csv"),), OPTIONS) for name in ("north", "south")]


def test_a_site_tells_sums_and_categories_and_nothing_else(folder):
    north, south = (site.summary() for site in sites(folder))
    assert (north.labels, north.train, north.test) == (("no", "yes"), 5, 0)
    assert south.columns["ward"].texts == ("1", "3")
    sums = north.columns["age"].sums  # of 30, 50, 40, 50
    assert (float(sums.count), float(sums.total), float(sums.squares)) == (4, 170, 275)


def test_all_sites_encode_alike(folder):
    """By hand: the ages 30, 50, 40, 50, 70 have mean 48 and deviation sqrt(176)."""
    both = sites(folder)
    agreed = agree([site.summary() for site in both], OPTIONS)
    assert agreed.classes == ("no", "yes")
    assert agreed.categories == {"ward": ("1", "2", "3")}
    north, south = (site.load(agreed) for site in both)
    deviation = 176**0.5
    expected = [[-18 / deviation, 1, 0, 0], [2 / deviation, 0, 1, 0], [0, 1, 0, 0]]  # missing: the mean
    assert np.allclose(north.x_train[:3], expected)
    assert north.y_train.tolist() == [0, 1, 0, 1, 0]
    assert np.allclose(south.x_train, [[22 / deviation, 0, 0, 1], [0, 1, 0, 0]])
    assert south.y_train.tolist() == [1, 0]


def test_sums_of_sites_are_sums_of_all():
    values = Key.from_seed(3).numpy().normal(1e6, 1.0, (1000, 4))
    values[::7, 2] = np.nan
    added = Sums.of(values[:13]) + Sums.of(values[13:500]) + Sums.of(values[500:500]) + Sums.of(values[500:])
    assert np.allclose(added.mean, np.nanmean(values, 0))
    assert np.allclose(added.deviation, np.nanstd(values, 0))


def test_the_split_takes_its_share_of_every_class():
    labels = ["a"] * 50 + ["b"] * 10 + ["c"] * 3 + ["d"]
    test = Split(0.2).test(labels)
    assert [int(test[a:b].sum()) for a, b in ((0, 50), (50, 60))] == [10, 2]
    assert not test[63]  # the only one of its class is for training
    pieces = Split(0.2)
    assert np.array_equal(test, np.concatenate([pieces.test(labels[:33]), pieces.test(labels[33:])]))
    few = Split(0.2).test([str(i % 10) for i in range(30)])  # three of each of ten classes
    assert 3 <= int(few.sum()) <= 9


def test_one_file_for_each_site(folder):
    found = csv(path="*.csv", label="sick", categories=("ward",), test=0.4)
    assert found.group_names == ("north", "south")
    assert found.class_names == ("no", "yes")
    assert len(found.y_train) + len(found.y_test) == 7
    shards = Natural().split(found, Key.from_seed(0))
    assert shards.names == ("north", "south")


def test_one_file_with_a_column_of_sites_has_the_same_samples(folder):
    rows = [f"{line},north" for line in NORTH.splitlines()[1:]]
    rows[2:2] = ["70,3,yes,south", "?,1,no,south"]  # in between
    (folder / "all.csv.gz").write_bytes(
        gzip.compress(("age,ward,sick,town\n" + "\n".join(rows)).encode("utf-8-sig"))
    )
    apart = csv(path="*th.csv", label="sick", categories=("ward",), test=0.4)
    joined = csv(path="all.csv.gz", label="sick", site="town", categories=("ward",), test=0.4)
    assert joined.group_names == apart.group_names
    for site in range(2):
        for part in ("train", "test"):
            mine, theirs = (
                getattr(d, f"x_{part}")[torch.from_numpy(getattr(d, f"groups_{part}") == site)]
                for d in (joined, apart)
            )
            assert torch.equal(mine, theirs)


def test_sites_are_named_by_their_folders(tmp_path):
    for name in ("site10", "site9"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.csv").write_text(NORTH)
    assert csv(path=f"{tmp_path}/*/data.csv", label="sick", test=0.4).group_names == ("site9", "site10")


def test_test_samples_may_have_files_of_their_own(folder):
    (folder / "test").mkdir()
    (folder / "test" / "north.csv").write_text(NORTH)
    (folder / "test" / "south.csv").write_text(SOUTH)
    given = csv(path="*.csv", label="sick", test_path="test/*.csv")
    assert (len(given.y_train), given.groups_test.tolist()) == (7, [0] * 5 + [1] * 2)
    (folder / "common.txt").write_text(NORTH)
    common = csv(path="*.csv", label="sick", test_path="common.txt")
    assert (len(common.y_test), common.groups_test) == (5, None)
    shoal.run(
        {
            "rounds": 1,
            "task": {"dataset": "csv", "path": "*.csv", "label": "sick", "model": "linear"}
            | {"test_path": "common.txt"},
        }
    )


def test_a_regression(folder):
    found = csv(path="north.csv", label="sick", ignore=("ward",), regression=False, test=0.4)
    assert found.classes == 2
    (folder / "prices.csv").write_text("rooms;price\n" + "".join(f"{i};{i / 3}\n" for i in range(30)))
    prices = csv(path="prices.csv", label="price", regression=True)
    assert (prices.classes, len(prices.y_test), prices.y_train.dtype) == (0, 6, torch.float32)


def test_parquet_has_the_same_samples_as_csv(folder):
    polars = pytest.importorskip("polars")
    for name in ("north", "south"):
        polars.read_csv(folder / f"{name}.csv", null_values="?").write_parquet(folder / f"{name}.parquet")
    one = csv(path="*.csv", label="sick", test=0.4)
    two = parquet(path="*.parquet", label="sick", test=0.4)
    assert torch.equal(one.x_train, two.x_train)
    assert torch.equal(one.y_test, two.y_test)
    assert one.group_names == two.group_names


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays(tmp_path, save):
    x = np.arange(60, dtype=np.float64).reshape(20, 3)
    save(tmp_path / "a.npz", x=x, y=np.arange(20) % 2, hospital=np.array(["n", "s"] * 10))
    found = npz(path=f"{tmp_path}/a.npz", site="hospital", test=0.2)
    assert found.group_names == ("n", "s")
    assert sorted(found.x_train[:, 0].tolist() + found.x_test[:, 0].tolist()) == x[:, 0].tolist()
    scaled = npz(path=f"{tmp_path}/a.npz", standardize=True)
    assert scaled.x_train.mean(0).abs().max() < 1e-6
    assert (scaled.x_train.std(0, correction=0) - 1).abs().max() < 1e-6


def test_images(tmp_path):
    from PIL import Image

    for site, shade in (("a", 0), ("b", 255)):
        for name in ("cat", "dog"):
            (tmp_path / site / name).mkdir(parents=True)
            for i in range(5):
                Image.new("RGB", (6, 4), (shade, 0, 0)).save(tmp_path / site / name / f"{i}.png")
    found = images(path=f"{tmp_path}/*")
    assert (found.shape, found.class_names, found.group_names) == ((3, 4, 6), ("cat", "dog"), ("a", "b"))
    assert found.x_train[torch.from_numpy(found.groups_train == 1)][:, 0].min() == 1
    Image.new("RGB", (9, 4)).save(tmp_path / "b" / "dog" / "odd.png")
    with pytest.raises(SpecError, match=r"odd.png is 9 x 4 pixels, but .* is 6 x 4; set task.size = 4"):
        images(path=f"{tmp_path}/*")
    assert images(path=f"{tmp_path}/*", size=8, grey=True).shape == (1, 8, 8)


def test_large_arrays_are_mapped_to_a_file_with_the_same_numbers(folder, monkeypatch):
    plain = csv(path="*.csv", label="sick", test=0.4)
    monkeypatch.setattr("shoal.data.sites.source.IN_MEMORY", 8)
    mapped = csv(path="*.csv", label="sick", test=0.4)
    assert isinstance(allocate(5, 2, Agreement({}, {}, (2,), (), False), OPTIONS).x_train, np.memmap)
    assert torch.equal(plain.x_train, mapped.x_train)


def test_data_larger_than_the_memory_that_is_allowed(tmp_path):
    """A process that may take 120 MB more trains on 160 MB of samples."""
    rows, width = 40_000, 1000
    with (tmp_path / "big.npz").open("wb") as file:
        y = np.arange(rows) % 2
        x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (rows, width))
        x[:, 0] = y  # all other pages stay holes
        x.flush()
        import zipfile

        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.write(tmp_path / "x.npy", "x.npy")
            with archive.open("y.npy", "w") as member:
                np.lib.format.write_array(member, y)
    code = """
import re, resource, shoal, shoal.runs.runner, shoal.data.sites.source as source
source.IN_MEMORY = 2**24
taken = 1024 * int(re.search(r"VmData:\\s+(\\d+)", open("/proc/self/status").read())[1])
resource.setrlimit(resource.RLIMIT_DATA, (taken + 120 * 2**20,) * 2)
result = shoal.run(dict(rounds=1, task=dict(dataset="npz", path="big.npz", model="linear"),
    partition=dict(kind="iid", clients=4), local=dict(batch=500, epochs=1), evaluate=dict(clients=0),
    engine=dict(mode="serial")))
print(result.final_accuracy)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) > 0.9
