"""Continue runs from their last checkpoint."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

from shoal.loop import Progress, start
from shoal.runs.build import Setup
from shoal.runs.directory import RunDirectory, Saved
from shoal.runs.result import Result
from shoal.runs.runner import Watcher, closing, environment, one_thread, run_remaining_rounds


def resume(
    path: str | Path, watcher: Watcher | None = None, *, rounds: int | None = None, report: bool = True
) -> Result:
    """Continue a run from its last checkpoint; the results are those of an uninterrupted run.

    With `rounds`, the run continues until it has this number of rounds, even if it was finished.
    """
    directory, spec = RunDirectory.open(Path(path))
    directory.lock()
    try:
        if rounds is not None:
            directory.extend(rounds)
            spec = replace(spec, rounds=rounds)
        saved = directory.load_checkpoint()
        with one_thread(), closing(spec) as setup:
            progress = _restored(setup, saved)
            return run_remaining_rounds(setup, progress, saved.records, directory, watcher, report)
    finally:
        directory.close()


def _restored(setup: Setup, saved: Saved) -> Progress:
    """The progress to continue from; also restores the clients' memories."""
    if saved.progress is None:
        return start(setup.federation)
    if saved.environment != environment():
        warnings.warn(
            f"this run was started on {saved.environment} and continues on {environment()}: "
            "the last bits of its numbers may differ from those of an uninterrupted run",
            stacklevel=3,
        )
    for client, memory in saved.memories.items():
        setup.federation.engine.restore(client, saved.progress.accepted[client], memory)
    return saved.progress
