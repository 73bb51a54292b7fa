"""A site's process: answers the relay's jobs, and keeps Flower's SuperNode running."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from shoal.core.errors import SpecError
from shoal.engines.flower import free_port
from shoal.federation.processes import end, environment_of, launch
from shoal.federation.warm_app import start_warm_app

LONGEST = 70  # characters in the path for temporary files: the path of a socket can have 107 at most
SOON, LATER = 2.0, 30.0  # seconds until a node that has ended is restarted: at first, and at most


class Membership(NamedTuple):
    """The identity of a site, from the folder that `shoal keys` created for it."""

    name: str
    id: int
    key: Path
    authority: Path


def read_membership(folder: Path) -> Membership:
    """Read the membership in a site's folder."""
    try:
        table = tomllib.loads((folder / "site.toml").read_text(encoding="utf-8"))
        found = Membership(str(table["name"]), int(table["id"]), folder / "site.key", folder / "ca.crt")
    except FileNotFoundError:
        raise SpecError(
            f"{folder} has no site.toml; ask the server's people for the folder that `shoal keys` made"
        ) from None
    except (tomllib.TOMLDecodeError, KeyError, ValueError) as error:
        raise SpecError(f"{folder / 'site.toml'} is damaged: {error}") from None
    return found


@dataclass
class Node:
    """Flower's SuperNode of this site, restarted whenever it ends."""

    server: str
    membership: Membership
    folder: Path
    say: Callable[[str], None]
    insecure: bool = False
    _process: subprocess.Popen[bytes] | None = None
    _app: subprocess.Popen[bytes] | None = None
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self, path: Path) -> None:
        """Keep the node running; the relay finds this process at the socket `path`."""
        pause, environment = SOON, environment_of(self.folder / "flower")
        self._app, environment = start_warm_app(path.parent, environment, self.log)
        while not self._over.is_set():
            began = time.monotonic()
            self._process = launch(self._command(path), environment, self.log)
            code = self._process.wait()
            if self._over.is_set():
                return
            end(self._process)
            pause = SOON if time.monotonic() - began > 4 * LATER else min(2 * pause, LATER)
            known = f"exit code {code}, {self.log.name} says why"
            self.say(f"no link to {self.server} ({known}); trying again in {pause:g} s")
            self._over.wait(pause)

    @property
    def log(self) -> Path:
        """The node's log file."""
        return self.folder / "node.log"

    def _command(self, path: Path) -> list[str]:
        command = ["flower-supernode", "--superlink", self.server, "--node-config", f'socket="{path}"']
        command += ["--port", str(free_port())]
        if self.insecure:
            return [*command, "--insecure"]
        key, authority = self.membership.key, self.membership.authority
        return [*command, "--root-certificates", str(authority), "--auth-supernode-private-key", str(key)]

    def close(self) -> None:
        """End the node."""
        self._over.set()
        for process in (self._process, self._app):
            if process is not None:
                end(process)


def listen(answer: Callable[[bytes, bytes], tuple[bytes, bytes]], server: socket.socket) -> None:
    """Answer the relay's jobs, one at a time, until the socket is closed."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection, connection.makefile("rwb") as file:
            try:
                found = answer(_part(file), _part(file))
                for part in found:
                    file.write(struct.pack("<Q", len(part)) + part)
                file.flush()
            except (OSError, EOFError):  # the relay is gone; the server will notice
                continue


def _part(file: Any) -> bytes:
    """Read a length in 8 bytes, then that many bytes."""
    head = file.read(8)
    if len(head) < 8:
        raise EOFError
    (length,) = struct.unpack("<Q", head)
    data: bytes = file.read(length)
    if len(data) < length:
        raise EOFError
    return data


def take_part(node: Node, answer: Callable[[bytes, bytes], tuple[bytes, bytes]]) -> None:
    """Answer a server's jobs until the process is ended."""
    short = len(tempfile.gettempdir()) < LONGEST
    place = Path(tempfile.mkdtemp(prefix="shoal-", dir=None if short else "/tmp"))
    path = place / "site.sock"
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()
            listener = threading.Thread(target=listen, args=(answer, server), daemon=True)
            listener.start()
            node.run(path)
    finally:
        node.close()
        shutil.rmtree(place, ignore_errors=True)
