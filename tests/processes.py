"""Shoal in processes of its own, as users start it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import shoal

TESTS = Path(__file__).parent
SHOAL = "from shoal.cli import main; main()"


def environment(**more: str) -> dict[str, str]:
    """For a process that finds this Shoal and the tests' own modules."""
    paths = (str(TESTS), str(Path(shoal.__file__).parents[1]))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}


def started(
    arguments: Sequence[Any], folder: Path, code: str = SHOAL, more: Mapping[str, str] = {}, **options: Any
) -> subprocess.Popen[str]:
    """A `shoal` command in a folder; `-P` keeps that off the module path, as for installed scripts."""
    command = [sys.executable, "-P", "-c", code, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    return subprocess.Popen(command, cwd=folder, env=environment(**more), **pipes)


def called(arguments: Sequence[Any], folder: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """A `shoal` command that has ended."""
    process = started(arguments, folder, **options)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)
