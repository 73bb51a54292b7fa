"""`python -m shoal.report.drawer` draws the page of one run, whose folder it reads from stdin.

It loads matplotlib while the run is still going. If stdin closes without a folder, it draws nothing.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import matplotlib

from shoal.report.page import write_report
from shoal.report.runs import read_run


def main() -> None:
    """Wait for the folder, then write its page."""
    gc.disable()  # the process ends before garbage matters
    matplotlib.rcdefaults()  # ignore a `matplotlibrc` in the current folder
    folder = Path(os.fsdecode(sys.stdin.buffer.read()))
    if folder != Path():
        run = read_run(folder)
        write_report([run], folder / "report.html", title=run.label)


if __name__ == "__main__":
    main()
    os._exit(0)  # the caller waits for it, and there is nothing to clean up
