"""Load the results of finished runs from their directories."""

from __future__ import annotations

import json
from pathlib import Path

from shoal.core.errors import SpecError
from shoal.loop import Progress
from shoal.runs.build import Setup, build
from shoal.runs.directory import SUMMARY, RunDirectory
from shoal.runs.manifest import ROUNDS
from shoal.runs.result import Result


def load_run(path: Path) -> Result:
    """The result of a finished run. Its data and models are loaded on demand."""
    directory, spec = RunDirectory.open(path)
    if not directory.finished:
        raise SpecError(f"{path} is not finished; go on with: shoal resume {path}")
    summary = json.loads((path / SUMMARY).read_text(encoding="utf-8"))
    lines = (path / ROUNDS).read_text(encoding="utf-8").splitlines()

    def restore() -> tuple[Setup, Progress]:
        saved = directory.load_checkpoint()
        if saved.progress is None:
            raise SpecError(
                f"{path} has no checkpoint, which its models are restored from; run it with "
                "checkpoint.every above 0"
            )
        setup = build(spec)
        for client, memory in saved.memories.items():
            setup.federation.engine.restore(client, saved.progress.accepted[client], memory)
        return setup, saved.progress

    return Result.of(summary, [json.loads(line) for line in lines], path, spec, restore)
