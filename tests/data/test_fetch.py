from __future__ import annotations

import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.core.errors import SpecError
from shoal.data.fetch import Archive, Member, RemoteFile, data_folder, fetch_files, fetch_members, watched


def left_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_folder_is_the_variable_or_the_cache(data, monkeypatch):
    assert data_folder() == data
    monkeypatch.setenv("SHOAL_DATA", "~/sets")
    assert data_folder() == Path.home() / "sets"
    monkeypatch.delenv("SHOAL_DATA")
    assert data_folder().name == "shoal"


def test_files_are_fetched_once(server, data, capfd):
    files = [server.offer("a.gz", b"one"), server.offer("b.gz", b"two", "other/deep/b.gz")]
    assert fetch_files(files) == [data / "set/a.gz", data / "other/deep/b.gz"]
    assert (data / "set/a.gz").read_bytes() == b"one"
    assert server.asked == ["/a.gz", "/b.gz"]
    fetch_files(files)
    assert len(server.asked) == 2
    assert left_in(data) == ["other/deep/b.gz", "set/a.gz"]
    assert capfd.readouterr() == ("", "")  # neither is a terminal


def test_who_watches_is_told_how_much_has_come(server, data):
    content = bytes(200_000)
    file, told = server.offer("large", content), []
    with watched(lambda *news: told.append(news)):
        fetch_files([file])
    assert told[-1] == ("set/large", 200_000, 200_000)
    assert [came for _, came, _ in told] == sorted(came for _, came, _ in told)
    fetch_files([server.offer("unwatched", content)])
    assert told[-1][0] == "set/large"


def test_files_that_are_there_need_no_address(data):
    (data / "set").mkdir(parents=True)
    (data / "set/a").write_bytes(b"")
    nothing = RemoteFile("set/a", "http://127.0.0.1:9/a", "md5:d41d8cd98f00b204e9800998ecf8427e")
    assert fetch_files([nothing]) == [data / "set/a"]
    assert fetch_files([replace(nothing, hash="sha1:da39a3ee5e6b4b0d3255bfef95601890afd80709")])


@pytest.mark.parametrize("name", ["absent", "changed", "short.gz"])
def test_a_failed_download_says_what_to_do_and_leaves_nothing(server, data, name):
    reasons = {
        "absent": "answered 404",
        "changed": "has a wrong checksum",
        "short.gz": "no connection",
    }
    good, last = server.offer("good", b"good"), server.offer("last", b"last")
    bad = server.offer(name, b"as promised")
    if name == "absent":
        (server.folder / name).unlink()
    else:
        (server.folder / name).write_bytes(b"something else")
    with pytest.raises(SpecError, match=reasons[name]) as error:
        fetch_files([good, bad, last])
    head, files = str(error.value).splitlines()
    assert str(data) in head
    assert "SHOAL_DATA" in head
    assert files.split(", ") == [
        f"{indent}{file.path}: missing; needs {file.hash} from {file.url}"
        for indent, file in (("  ", bad), ("", last))
    ]  # the good one is there by now
    assert left_in(data) == ["set/good"]
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


def test_offline_names_every_missing_file(server, data):
    there = server.offer("there", b"there")
    fetch_files([there])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    gone = [RemoteFile(f"set/{name}", f"http://127.0.0.1:{port}/{name}", "md5:00") for name in "ab"]
    with pytest.raises(SpecError, match=f"no connection to 127.0.0.1:{port};") as error:
        fetch_files([there, *gone])
    _, files = str(error.value).splitlines()
    assert [line.split(":")[0] for line in files.strip().split(", ")] == ["set/a", "set/b"]
    assert left_in(data) == ["set/there"]


def test_a_wrong_file_is_reported_and_kept(server, data):
    wrong, missing = server.offer("wrong", b"right"), server.offer("missing", b"missing")
    (data / "set").mkdir(parents=True)
    (data / "set/wrong").write_bytes(b"somebody's own")
    with pytest.raises(SpecError, match="wrong checksums; remove them") as error:
        fetch_files([wrong, missing])
    first, second = str(error.value).splitlines()[1].split(", set/")
    assert re.fullmatch(
        rf"  set/wrong: wrong, has sha256:\w{{64}}; needs {wrong.hash} from {wrong.url}", first
    )
    assert second.startswith("missing: missing; needs ")
    assert (data / "set/wrong").read_bytes() == b"somebody's own"
    assert server.asked == []


def test_a_folder_that_cannot_be_made(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "file"))
    with pytest.raises(SpecError, match=r"download failed: .*file"):
        fetch_files([server.offer("a", b"a")])


@pytest.mark.parametrize("name", ["packed.tar.gz", "packed.zip"])
def test_members_come_out_of_their_archive(server, data, name):
    archive = server.archive(name, {"inner/b.bin": b"bb", "inner/a.bin": b"aa", "inner/c.bin": b"cc"})
    wanted = Archive(archive.file, archive.members[1::-1])  # two of three, in another order
    assert [path.read_bytes() for path in fetch_members(wanted)] == [b"aa", b"bb"]
    assert left_in(data) == sorted([name, "set/a.bin", "set/b.bin"])
    (data / "set/a.bin").unlink()
    fetch_members(archive)  # the archive is there
    assert left_in(data) == sorted([name, "set/a.bin", "set/b.bin", "set/c.bin"])
    (data / name).unlink()
    fetch_members(archive)  # its members are there
    assert server.asked == [f"/{name}"]


def test_a_missing_archive_names_its_members_too(server, data):
    archive = server.archive("packed.zip", {"inner/a.bin": b"aa"})
    (server.folder / "packed.zip").unlink()
    with pytest.raises(SpecError, match="answered 404") as error:
        fetch_members(archive)
    assert str(error.value).splitlines()[1:] == [
        f"  packed.zip: missing; needs {archive.file.hash} from {archive.file.url}, or what is in it: "
        f"set/a.bin: missing; needs {archive.members[0].hash} from {archive.file.url}"
    ]
    assert left_in(data) == []


def test_a_wrong_member_is_reported_and_kept(server, data):
    archive = server.archive("packed.zip", {"inner/a.bin": b"aa"})
    (data / "set").mkdir(parents=True)
    (data / "set/a.bin").write_bytes(b"AA")
    with pytest.raises(SpecError, match=r"set/a.bin: wrong, has sha1:"):
        fetch_members(archive)
    assert left_in(data) == ["set/a.bin"]
    unchecked = Archive(archive.file, (replace(archive.members[0], hash=None),))
    assert fetch_members(unchecked) == [data / "set/a.bin"]


@pytest.mark.parametrize("name", ["packed.tar.gz", "packed.zip"])
def test_an_archive_of_other_content(server, data, name):
    archive = server.archive(name, {"inner/a.bin": b"aa"})
    other = Archive(archive.file, (replace(archive.members[0], hash="sha1:00"),))
    with pytest.raises(SpecError, match=r"inner/a.bin in .* has the checksum sha1:\w+ instead of sha1:00"):
        fetch_members(other)
    with pytest.raises(SpecError, match=r"lacks inner/z.bin"):
        fetch_members(Archive(archive.file, (Member("set/z.bin", "inner/z.bin"),)))
    assert left_in(data) == [name]


@pytest.mark.parametrize("name", ["packed.tar.gz", "packed.zip"])
def test_an_archive_that_is_none(server, data, name):
    file = server.offer(name, b"not an archive", name)
    with pytest.raises(SpecError, match="could not unpack"):
        fetch_members(Archive(file, (Member("set/a", "a"),)))
    assert left_in(data) == [name]
