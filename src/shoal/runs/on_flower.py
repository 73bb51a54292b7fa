"""Runs on a Flower federation of local processes; results are read back from the run directory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from shoal.engines.flower import new_lines, run_here
from shoal.run_settings import EngineSpec
from shoal.runs.directory import SUMMARY, RunDirectory
from shoal.runs.manifest import ROUNDS
from shoal.runs.result import Result
from shoal.runs.runner import Watcher, closing
from shoal.spec import Spec, dump_spec


def run_on_flower(spec: Spec, out: Path | None, watcher: Watcher | None) -> Result:
    """Run a spec; without `out`, in a temporary folder."""
    with TemporaryDirectory(prefix="shoal-run-") as folder:
        place, file = out or Path(folder) / "run", Path(folder) / "spec.toml"
        file.write_text(dump_spec(spec), encoding="utf-8")
        added = new_lines(place / ROUNDS)

        def seen() -> None:
            for line in next(added):
                if watcher is not None:
                    watcher(json.loads(line))

        with closing(replace(spec, engine=EngineSpec())) as setup:
            run_here(file, place, len(setup.shards), seen)
            directory, _ = RunDirectory.open(place)
            saved = directory.load_checkpoint()
            progress = saved.progress
            assert progress is not None  # a federation always writes one
            summary = json.loads((place / SUMMARY).read_text(encoding="utf-8"))
            return Result.of(summary, saved.records, out, spec, lambda: (setup, progress))
