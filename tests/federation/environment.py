"""The environment with Flower and Ray, which clash with the development tools, and how to use it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("SHOAL_FEDERATION_PYTHON") or str(ROOT / ".venv-federation" / "bin" / "python")
SOURCE = str(ROOT / "src")

there = pytest.mark.skipif(not Path(PYTHON).exists(), reason="no .venv-federation; `make test` creates it")


def environment(folder: Path) -> dict[str, str]:
    """Files of Flower go to the folder, by which its processes are found; Ray wants short paths.

    A node of Flower's own looks for its programs on the path.
    """
    path = f"{Path(PYTHON).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "TMPDIR": str(folder), "RAY_TMPDIR": "/tmp", "PYTHONPATH": SOURCE, "PATH": path}


def shoal_command(folder: Path, *arguments: object, timeout: float = 600) -> subprocess.CompletedProcess:
    command = [PYTHON, "-m", "shoal", *map(str, arguments)]
    return subprocess.run(
        command,
        env=environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def ran(folder: Path, spec: Path, *arguments: object, timeout: float = 600) -> dict:
    """The summary of a run in the federation's environment."""
    done = shoal_command(folder, "run", spec, "--json", *arguments, timeout=timeout)
    assert not done.returncode, done.stderr[-3000:]
    return json.loads(done.stdout)


def processes_of(folder: Path) -> list[str]:
    """The command lines of processes that were started with files of the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has just ended
            continue
        if str(folder) in line and int(path.name) != os.getpid():
            found.append(line)
    return found
