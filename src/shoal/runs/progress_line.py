"""Progress without bars: one line that is rewritten, or a new line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

EVERY = 5.0  # seconds between two lines
OFTEN = 0.2  # seconds between two updates of a rewritten line


class ProgressLine:
    """A watcher that shows the progress of a run."""

    def __init__(self, label: str, rounds: int, stream: TextIO, *, rewrite: bool) -> None:
        self._label, self._rounds, self._stream, self._rewrite = label, rounds, stream, rewrite
        self._started = self._last = time.monotonic()
        self._first: int | None = None  # the number of rounds done before the first call

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Show the progress after a round."""
        now, done = time.monotonic(), int(record["round"])
        self._first = done - 1 if self._first is None else self._first
        over = done == self._rounds
        if now - self._last < (OFTEN if self._rewrite else EVERY) and not (over and self._rewrite):
            return
        self._last = now
        left = (now - self._started) / max(1, done - self._first) * (self._rounds - done)
        parts = [f"{self._label}: round {done} of {self._rounds}", score_text(record)]
        parts.append("" if over else f"{left:.0f} s left")
        line = ", ".join(part for part in parts if part)
        self._stream.write(f"\r{line:<70}{chr(10) * over}" if self._rewrite else f"{line}\n")
        self._stream.flush()


def score_text(record: Mapping[str, Any]) -> str:
    """The accuracy or the error of a round, if it was measured."""
    if record.get("accuracy") is not None:
        return f"{100 * record['accuracy']:.1f} %"
    return f"mse {record['mse']:.4g}" if record.get("mse") is not None else ""


def progress_line(label: str, rounds: int, shown: bool | None) -> ProgressLine | None:
    """A progress line for runs started from Python; shown by default in notebooks and terminals."""
    notebook = "ipykernel" in sys.modules
    if not (notebook or sys.stderr.isatty() if shown is None else shown):
        return None
    return ProgressLine(label, rounds, sys.stdout if notebook else sys.stderr, rewrite=True)
