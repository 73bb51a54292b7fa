"""A whole federation on this machine: server and clients of a spec, as they would run on separate machines.

The commands `shoal keys`, `shoal server` and `shoal client` do the work; this module starts and stops them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from shoal.core.errors import SpecError, StageError
from shoal.engines.os_settings import die_with_parent

MOST = 32  # sites on one machine: each takes four processes


def run_here(spec: Path, out: Path, clients: int, seen: Callable[[], None]) -> None:
    """Run a spec file on a federation of `clients` sites; `seen` is called at short intervals."""
    if importlib.util.find_spec("flwr") is None:
        raise SpecError('engine flower needs Flower; install it with: pip install "shoal[flower]"')
    if clients > MOST:
        raise SpecError(
            f"engine flower starts four processes for each client; {clients} clients are more than {MOST}; "
            "run them on engine local or ray"
        )
    with tempfile.TemporaryDirectory(prefix="shoal-federation-") as folder, contextlib.ExitStack() as stack:
        place = Path(folder)
        names = [f"site{i}" for i in range(clients)]
        log = place / "keys.log"
        if _shoal(log, "keys", folder, "--sites", ",".join(names)).wait():
            raise StageError(f"shoal keys failed: {_tail(log)}")
        port = free_port()
        address = f"127.0.0.1:{port}"
        for name in names:
            own = place / "sites" / name
            client = _shoal(own / "client.log", "client", "--server", address, "--dir", own, "--data", "spec")
            stack.callback(_end, client)
        log = place / "server.log"
        options = ("--dir", folder, "--out", out, "--host", "127.0.0.1", "--port", port, "--simulated")
        server = _shoal(log, "server", spec, *options)
        stack.callback(_end, server)
        while server.poll() is None:
            seen()
            time.sleep(0.2)
        seen()
        if server.returncode:
            said = _tail(log).removeprefix("shoal: ")
            raise SpecError(said) if server.returncode == SPEC_ERROR else StageError(said)


SPEC_ERROR = 2  # the exit code of the command line


def _shoal(log: Path, *arguments: object) -> subprocess.Popen[bytes]:
    """Start a Shoal command; it is killed when this process ends."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "shoal", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop a command, which stops its own processes."""
    for number, patience in ((signal.SIGINT, 15.0), (signal.SIGKILL, None)):
        if process.poll() is not None:
            return
        os.kill(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)


def free_port() -> int:
    """A port on this machine that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _tail(log: Path) -> str:
    """The last error message in a log, or its last three lines if there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    errors = [i for i, line in enumerate(lines) if line.startswith("shoal: ")]
    return "\n".join(lines[errors[-1] :] if errors else lines[-3:])


def new_lines(path: Path) -> Iterator[Sequence[str]]:
    """Yields the complete lines added to a file since the last time; none while the file does not exist."""
    read = 0
    while True:
        data = path.read_bytes()[read:] if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        read += len(whole)
        yield whole.decode().splitlines()
