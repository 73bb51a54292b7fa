"""Files of people's own that are damaged: what `make fuzz` found, and its like."""

import gzip
import io

import numpy as np
import polars
import pytest
import torch
from fuzz.targets import TABLE_TEXT, packed_picture
from PIL import Image

from shoal import SpecError
from shoal.core.serialization import from_bytes, to_bytes
from shoal.data import own
from shoal.data.sites import CsvFile, SiteOptions, SiteSource
from shoal.federation.own_files import read_summary, summary_tree


def refused(read, path, content, said):
    path.write_bytes(content)
    with pytest.raises(SpecError, match=said) as error:
        read()
    assert "\n" not in str(error.value)


def test_a_gzipped_table_with_a_flipped_bit(tmp_path):
    path = tmp_path / "own.csv.gz"
    content = bytearray(gzip.compress(TABLE_TEXT, mtime=0))
    content[14] ^= 255
    refused(lambda: own.csv(path=str(path), label="sick"), path, content, r"own.csv.gz cannot be read")


@pytest.mark.parametrize(("save", "places"), [(np.savez, (55, 60)), (np.savez_compressed, (55, 57, 70))])
def test_arrays_with_flipped_bits(save, places, tmp_path):
    path, buffer = tmp_path / "own.npz", io.BytesIO()
    save(buffer, x=np.zeros((10, 3), np.float32), y=np.arange(10) % 2)
    whole = buffer.getvalue()
    for place in places:  # the first array begins at 55
        content = bytearray(whole)
        content[place] ^= 255
        refused(lambda: own.npz(path=str(path)), path, content, "own.npz")


def test_a_parquet_file_whose_pages_are_damaged(tmp_path):
    path, buffer = tmp_path / "own.parquet", io.BytesIO()
    polars.DataFrame({"age": [1.5, 2.5, 3.5] * 20, "sick": list("yny") * 20}).write_parquet(buffer)
    content = bytearray(buffer.getvalue())
    content[4:60] = b"\xff" * 56
    refused(lambda: own.parquet(path=str(path), label="sick"), path, content, "cannot be read as Parquet")


def test_an_image_is_refused_before_it_is_unpacked(tmp_path):
    """Its header says ten thousand pixels each way, which would take a gigabyte."""
    small = packed_picture(Image.new("RGB", (6, 5)), "PNG")
    for name in ("cat/0.png", "dog/0.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(small)
    large = small[:16] + (10_000).to_bytes(4, "big") * 2 + small[24:]
    said = "cannot be read as an image|10000 x 10000 pixels, but .*0.png is 6 x 5; set task.size = 5"
    refused(lambda: own.images(path=str(tmp_path)), tmp_path / "dog" / "1.png", large, said)
    cut = small[: len(small) // 2]
    refused(lambda: own.images(path=str(tmp_path)), tmp_path / "dog" / "1.png", cut, "as an image")


def test_a_summary_that_does_not_fit_together_is_refused(tmp_path):
    (tmp_path / "site.csv").write_bytes(TABLE_TEXT)
    source = SiteSource("south", (CsvFile(tmp_path / "site.csv"),), SiteOptions("sick"))
    tree = from_bytes(to_bytes(summary_tree(source.summary())))
    assert read_summary(tree, "south").train == source.summary().train
    sums = tree["columns"]["age"]["sums"]
    for lie in (
        {"kind": "number", "sums": None, "texts": []},
        {"kind": "date", "sums": None, "texts": []},
        {"kind": "text", "sums": None, "texts": []},
        {"kind": "number", "sums": {**sums, "count": torch.ones(3, dtype=torch.float64)}, "texts": []},
        {"kind": "number", "sums": {**sums, "total": torch.tensor(float("nan"))}, "texts": []},
        {"kind": "number", "sums": {**sums, "squares": torch.tensor(-1.0)}, "texts": []},
    ):
        with pytest.raises(ValueError, match="column"):
            read_summary({**tree, "columns": {**tree["columns"], "age": lie}}, "south")
    with pytest.raises(ValueError, match="negative"):
        read_summary({**tree, "train": -1}, "south")
