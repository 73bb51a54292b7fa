"""A process at a site that has already imported Flower, and forks for each message.

Flower starts `flwr-clientapp`, found by that name, for every message that a site gets, and importing Flower
takes more than a second of processor time. So the folder that a node searches first contains a small program
of that name. It asks this process to fork, and the child acts as the program that Flower wanted to start.

    python -m shoal.federation.warm_app SOCKET
"""

from __future__ import annotations

import gc
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

from shoal.federation.processes import BIN, launch

COMMAND = "flwr-clientapp"
ASK = Path(__file__).with_name("ask_warm_app.py")


def start_warm_app(
    place: Path, environment: Mapping[str, str], log: Path
) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    """Start the process in its own folder; also returns the environment for a node that uses it."""
    path, programs = place / "app.sock", place / "bin"
    programs.mkdir()
    program = [sys.executable, "-IS", str(ASK), str(path), str(BIN / COMMAND)]
    (programs / COMMAND).write_text(f'#!/bin/sh\nexec {shlex.join(program)} "$@"\n', encoding="utf-8")
    (programs / COMMAND).chmod(0o755)
    alone = {**environment, "OPENBLAS_NUM_THREADS": "1"}  # a process that forks should have no threads
    process = launch([Path(sys.executable).name, "-m", "shoal.federation.warm_app", str(path)], alone, log)
    return process, {**environment, "PATH": f"{programs}{os.pathsep}{environment['PATH']}"}


def wait_for_arguments(path: str) -> list[str]:
    """Listen at a socket and fork for every request; returns in the children, with the arguments."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children do not become zombies
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as file:
                asked = file.readline()
                if asked and not os.fork():
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    arguments: list[str] = json.loads(asked)
                    return arguments
                connection.sendall(b"\n")


def main(path: str) -> None:
    """Serve requests until the process is ended."""
    (found,) = entry_points(group="console_scripts", name=COMMAND)
    command = found.load()
    import flwr.clientapp  # noqa: F401  what the relay imports

    gc.freeze()  # so that children share memory
    sys.argv = [COMMAND, *wait_for_arguments(path)]
    sys.exit(command())


if __name__ == "__main__":
    main(sys.argv[1])
