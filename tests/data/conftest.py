"""Data sets in miniature, in their publishers' formats, and a publisher's server on loopback."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import struct
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from shoal.core.data import Dataset
from shoal.core.key import Key
from shoal.data.downloads import ARCHIVES, FILES
from shoal.data.fetch import Archive, Member, RemoteFile

REAL_FOLDERS = [
    Path(os.environ.get("SHOAL_DATA") or "/nowhere"),
    Path(__file__).parents[2].parent / "shared" / "data",
]

# '?' and -9 are missing, as are cholesterol and blood pressure of 0; the last column is the diagnosis
HEART_ROWS = [
    "50,1,1,120,200,0,0,150,0,1.0,1,0,3,0",
    "60,0,2,0,0,1,1,-9,1,2.0,?,?,?,0",
    "70,1,4,140,?,?,?,130,?,3.0,3,?,7,0",
    "55,0,3,-9,400,0,2,140,0,?,2,1,6,0",
    "40,1,4,160,300,1,0,120,1,0.5,1,2,7,3",
]


def sha256(path: Path) -> str:
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes())


@dataclass(frozen=True)
class Publisher:
    """Writes miniature data sets into a folder and makes their checksums the known ones."""

    folder: Path
    patch: pytest.MonkeyPatch

    def bytes(self, *shape: int, high: int = 256) -> np.ndarray:
        return Key.from_seed(0).fold(*shape, high).numpy().integers(high, size=shape, dtype=np.uint8)

    def write(self, path: str, content: bytes) -> str:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        return sha256(target)

    def files(self, name: str, contents: list[bytes]) -> None:
        known = [replace(f, hash=self.write(f.path, c)) for f, c in zip(FILES[name], contents, strict=True)]
        self.patch.setitem(FILES, name, tuple(known))

    def members(self, name: str, contents: dict[str, bytes]) -> None:
        known = [
            replace(m, hash=self.write(m.path, contents[m.path]))
            for m in ARCHIVES[name].members
            if m.path in contents
        ]
        self.patch.setitem(ARCHIVES, name, replace(ARCHIVES[name], members=tuple(known)))

    def grey(self, name: str, train: int = 20, test: int = 10) -> tuple[np.ndarray, ...]:
        parts = (
            self.bytes(train, 28, 28),
            self.bytes(train, high=10),
            self.bytes(test, 28, 28),
            self.bytes(test, high=10),
        )
        self.files(name, [idx(part) for part in parts])
        return parts

    def hospitals(self, rows: int = 40) -> None:
        table = "".join(f"{row}\n" for row in (HEART_ROWS * rows)[:rows])
        self.files("heart_disease", [table.encode()] * 4)

    def house_numbers(self, images: np.ndarray, labels: np.ndarray) -> None:
        stream = io.BytesIO()
        savemat(stream, {"X": images, "y": labels})
        self.files("svhn", [stream.getvalue()] * 2)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder: no test reads or fills the user's own."""
    folder = tmp_path / "data"
    monkeypatch.setenv("SHOAL_DATA", str(folder))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return folder


@pytest.fixture
def publisher(data: Path, monkeypatch: pytest.MonkeyPatch) -> Publisher:
    return Publisher(data, monkeypatch)


@pytest.fixture
def real(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, Callable[[], object]], bool]:
    """Points SHOAL_DATA at the published files where they lie; else makes a miniature and says False."""

    def use(name: str, miniature: Callable[[], object]) -> bool:
        for folder in REAL_FOLDERS:
            if all((folder / file.path).is_file() for file in FILES[name]):
                monkeypatch.setenv("SHOAL_DATA", str(folder))
                return True
        miniature()
        return False

    return use


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder, notes what was asked for, and breaks off in the middle of files named short.*."""

    asked: list[str]

    def __init__(self, *args: object, asked: list[str], **options: object) -> None:
        self.asked = asked
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if "/short." in self.path:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"half")
        else:
            super().do_GET()

    def log_message(self, *args: object) -> None:
        pass


@dataclass(frozen=True)
class Server:
    """A publisher on loopback."""

    folder: Path
    address: str
    asked: list[str]

    def offer(self, name: str, content: bytes, path: str = "") -> RemoteFile:
        """Publish a file; `path` is where it belongs in the data folder."""
        (self.folder / name).write_bytes(content)
        return RemoteFile(path or f"set/{name}", f"{self.address}/{name}", sha256(self.folder / name))

    def archive(self, name: str, contents: dict[str, bytes]) -> Archive:
        stream = io.BytesIO()
        if name.endswith(".zip"):
            with zipfile.ZipFile(stream, "w") as packed:
                for inner, content in contents.items():
                    packed.writestr(inner, content)
        else:
            with tarfile.open(fileobj=stream, mode="w:gz") as tape:
                for inner, content in contents.items():
                    entry = tarfile.TarInfo(inner)
                    entry.size = len(content)
                    tape.addfile(entry, io.BytesIO(content))
        members = [
            Member(f"set/{Path(inner).name}", inner, f"sha1:{hashlib.sha1(content).hexdigest()}")
            for inner, content in contents.items()
        ]
        return Archive(self.offer(name, stream.getvalue(), name), tuple(members))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "published"
    folder.mkdir()
    asked: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, asked=asked, directory=folder)) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Server(folder, f"http://127.0.0.1:{http.server_port}", asked)
        http.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def labelled() -> Callable[..., Dataset]:
    """Makes data sets of which only the labels matter."""

    def make(labels: np.ndarray, classes: int = 10, groups: np.ndarray | None = None) -> Dataset:
        x, y = torch.zeros(len(labels), 1), torch.from_numpy(np.asarray(labels))
        names = () if groups is None else ("north", "south")
        return Dataset("toy", x, y, x[:0], y[:0], classes, groups_train=groups, group_names=names)

    return make
