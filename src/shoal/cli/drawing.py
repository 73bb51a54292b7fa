"""Draw a run's report page in a process that loads matplotlib while the run loads torch and trains."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

_DRAWER = ("-P", "-m", "shoal.report.drawer")  # -P: files in the current folder do not shadow packages

Draw = Callable[[Path], None]  # writes the report page of the run in a folder


@contextmanager
def drawing() -> Iterator[Draw]:
    """Yield a function that writes the page of a finished run. Enter this before slow imports."""
    drawer = _start()
    try:
        yield lambda folder: _draw(drawer, folder)
    finally:
        if drawer is not None:
            drawer.kill()
            drawer.communicate()


def _start() -> Popen[bytes] | None:
    if "torch" in sys.modules:  # called from Python, where the slow imports are done
        return None
    try:
        # its own process group: Ctrl-C does not reach it
        return Popen([sys.executable, *_DRAWER], stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, process_group=0)
    except OSError:
        return None


def _draw(drawer: Popen[bytes] | None, folder: Path) -> None:
    """Let the drawer process write the page; if it fails, write it here, or raise the error."""
    from shoal.runs.runner import write_run_report

    if drawer is not None:
        drawer.communicate(os.fsencode(folder))
    if drawer is None or drawer.returncode:
        write_run_report(folder)
