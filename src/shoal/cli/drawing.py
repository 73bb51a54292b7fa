"""The page of a run, drawn by a process that loads matplotlib while the run loads torch and trains."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

_DRAWER = ("-P", "-m", "shoal.report.drawer")  # -P: no file in the current folder takes a package's place

Draw = Callable[[Path], None]  # writes the page of the run in a folder


@contextmanager
def drawing() -> Iterator[Draw]:
    """A function that writes the page of a finished run. Enter this before anything slow is imported."""
    drawer = _start()
    try:
        yield lambda folder: _draw(drawer, folder)
    finally:
        if drawer is not None:
            drawer.kill()
            drawer.communicate()


def _start() -> Popen[bytes] | None:
    if "torch" in sys.modules:  # whoever called the command from Python has waited already
        return None
    try:
        # in a process group of its own, Ctrl-C does not reach it
        return Popen([sys.executable, *_DRAWER], stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, process_group=0)
    except OSError:
        return None


def _draw(drawer: Popen[bytes] | None, folder: Path) -> None:
    """Let the drawer write the page; where it cannot, this process does, or says why not."""
    from shoal.runs.runner import write_run_report

    if drawer is not None:
        drawer.communicate(os.fsencode(folder))
    if drawer is None or drawer.returncode:
        write_run_report(folder)
