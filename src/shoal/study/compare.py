"""Several methods under one spec and several seeds, each a run of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from shoal.config import Table
from shoal.core.errors import SpecError
from shoal.overrides import with_method, with_settings
from shoal.runs.directory import REPORT, RunDirectory
from shoal.runs.runner import Watcher, resume, run
from shoal.spec import Spec, from_table


class PlannedRun(NamedTuple):
    """One run of a comparison."""

    label: str
    spec: Spec
    directory: Path


def plan(
    names: Sequence[str], table: Table, settings: Sequence[str], seeds: Sequence[int], out: Path
) -> list[PlannedRun]:
    """All runs, checked before the first one starts.

    A name may carry fields of its method, or of the spec: `fedprox:mu=0.1,local.lr=0.01`.
    """
    if len(set(names)) < len(names):
        raise SpecError(f"every method must be named once, got {' '.join(names)}")
    check_seeds(seeds, settings)
    cells = []
    for label in names:
        name, fields = split(label, "method")
        chosen = with_settings(with_method(table, name), [*settings, *fields])
        for seed in seeds:
            folder = out / f"{file_name(label)}-seed{seed}"
            cells.append(PlannedRun(label, from_table({**chosen, "seed": seed}), folder))
    return cells


def check_seeds(seeds: Sequence[int], settings: Sequence[str]) -> None:
    """Refuse seeds that say nothing, or are said twice."""
    if any(setting.split("=")[0].strip() == "seed" for setting in settings):
        raise SpecError("seeds come from --seeds, not from --set seed")
    if not seeds or len(set(seeds)) < len(seeds):
        raise SpecError(
            f"seeds must be different whole numbers such as 0,1,2; got {','.join(map(str, seeds))}"
        )


def split(label: str, table: str) -> tuple[str, list[str]]:
    """The name of a part, and the fields that the label gives it as settings of its table."""
    name, *rest = re.split(r"[:,](?=[A-Za-z_][\w.]*=)", label)
    return name, [field if "." in field.split("=")[0] else f"{table}.{field}" for field in rest]


def file_name(label: str) -> str:
    """A label as part of a path."""
    return re.sub(r"[^A-Za-z0-9.=_-]+", "-", label)


def play(cells: Sequence[PlannedRun], watch: Callable[[PlannedRun], Watcher | None]) -> None:
    """Run what is not yet done: a cell that was finished is kept, one that was interrupted goes on."""
    for cell in cells:
        if not cell.directory.exists():
            run(cell.spec, cell.directory, watch(cell))
        elif not RunDirectory.reopen(cell.directory, cell.spec).finished:
            resume(cell.directory, watch(cell))


def report(cells: Sequence[PlannedRun], out: Path, title: str) -> Path:
    """A page that sets the runs side by side."""
    from shoal.report.page import write_report  # matplotlib is slow to import, and only needed here
    from shoal.report.runs import read_run

    path = out / REPORT
    write_report([read_run(cell.directory, cell.label) for cell in cells], path, title=title)
    return path
