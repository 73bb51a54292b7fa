"""Flower's processes: starting them, keeping them quiet, and ending them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.core.errors import SpecError, StageError
from shoal.engines.os_settings import die_with_parent

BIN = Path(sys.executable).parent  # links are not followed: an environment's programs are next to its Python
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
}


def check_flower() -> None:
    """Raise `SpecError` if Flower is not installed."""
    if not (BIN / "flower-superlink").exists():
        raise SpecError('a federation needs Flower; install it with: pip install "shoal[flower]"')


def environment_of(home: Path) -> dict[str, str]:
    """The environment of Flower's processes; their own files are in `home`."""
    home.mkdir(parents=True, exist_ok=True)
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"  # they start other programs by name
    return {**os.environ, **QUIET, "FLWR_HOME": str(home.resolve()), "PATH": path}


def launch(command: Sequence[str], environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start one of Flower's programs; it ends with this process."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(
            [str(BIN / command[0]), *command[1:]],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
            start_new_session=True,  # so that it can be ended together with all that it starts
        )


def end(process: subprocess.Popen[bytes], patience: float = 5.0) -> None:
    """End a program and all processes that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def ask(command: Sequence[str], environment: Mapping[str, str], patience: float = 120.0) -> dict[str, Any]:
    """The JSON that one of Flower's commands prints; raises `StageError` if it fails."""
    process = subprocess.run(
        [str(BIN / "flwr"), *command, "--format", "json"],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=patience,
        check=False,
    )
    try:
        found: dict[str, Any] = json.loads(process.stdout[process.stdout.index(b"{") :])
    except ValueError:
        raise StageError(f"flwr {' '.join(command[:2])} failed: {process.stderr.decode()[-500:]}") from None
    return found


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path, patience: float = 180.0) -> None:
    """Wait until a program listens on a port of this machine."""
    began = time.monotonic()
    while time.monotonic() - began < patience:
        if process.poll() is not None:
            raise StageError(f"{log.stem} ended with {process.returncode}; {log} says why")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise StageError(f"{log.stem} does not listen on port {port} after {patience:g} s; {log} may say why")
