"""Data files that claim or unpack to more than they should."""

import gzip
import io
import tarfile
import tracemalloc
import zipfile

import pytest

from shoal import SpecError
from shoal.data import fetch
from shoal.data.fetch import Archive, Member, RemoteFile, fetch_members
from shoal.data.file_formats import read_idx, read_svhn


def idx(shape, data):
    return bytes((0, 0, 8, len(shape))) + b"".join(n.to_bytes(4, "big") for n in shape) + data


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not with 000008"),
        (b"\0\0\x08", "index out of range"),
        (b"\0\0\x08\0", "says 0 axes"),
        (b"\0\0\x08\xff", "says 255 axes"),
        (b"\0\0\x08\3\0\0\0\1", "says 3 axes, and names 1"),
        (idx([2**32 - 1] * 4, b"123"), "but 3 bytes follow"),
        (idx([2, 2], b"123"), "but 3 bytes follow"),
        (idx([2], b"123"), "but more bytes follow"),
    ],
)
def test_an_idx_file_with_a_wrong_header_is_refused(tmp_path, content, said):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(SpecError, match=rf"images.gz is damaged: .*{said}"):
        read_idx(path)


def test_a_small_file_that_unpacks_to_a_large_one_takes_little_memory(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx([10], bytes(2**26)), 1))
    tracemalloc.start()
    with pytest.raises(SpecError, match="more bytes follow"):
        read_idx(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**22


def test_a_damaged_matlab_file_is_an_error_of_one_line(tmp_path):
    for content in (b"", b"MATLAB 5.0 MAT-file" + bytes(200), bytes(range(256)) * 4):
        (tmp_path / "train.mat").write_bytes(content)
        with pytest.raises(SpecError, match=r"train.mat is damaged"):
            read_svhn(tmp_path / "train.mat")


def archive(path, name):
    digest = fetch._digest(path, "sha256")
    remote = RemoteFile(path.name, f"https://example.org/{path.name}", digest)
    return Archive(remote, (Member("data/train.bin", name),))


def test_a_member_of_an_archive_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "LARGEST_MEMBER", 1000)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("train.bin", bytes(10**6))
    with pytest.raises(SpecError, match=r"train.bin in .*bomb.zip is larger than 1,000 bytes"):
        fetch_members(archive(tmp_path / "bomb.zip", "train.bin"), tmp_path)
    assert not list((tmp_path / "data").iterdir())


def test_a_member_lands_in_its_own_place_or_nowhere(tmp_path):
    """Names that lead elsewhere, and links, are not followed."""
    with tarfile.open(tmp_path / "sly.tar.gz", "w:gz") as packed:
        for name in ("../outside.bin", "/outside.bin"):
            entry = tarfile.TarInfo(name)
            entry.size = 4
            packed.addfile(entry, io.BytesIO(b"evil"))
        link = tarfile.TarInfo("train.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        packed.addfile(link)
    with pytest.raises(SpecError, match=r"sly.tar.gz lacks train.bin"):
        fetch_members(archive(tmp_path / "sly.tar.gz", "train.bin"), tmp_path)
    assert not (tmp_path.parent / "outside.bin").exists()
    assert not (tmp_path / "data").exists()
