"""Comparisons: several methods with one spec and several seeds, as separate runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from shoal.config import Table
from shoal.core.errors import SpecError
from shoal.core.method import Method, Recipe
from shoal.overrides import with_method, with_settings, with_values
from shoal.runs.directory import REPORT, SUMMARY, RunDirectory
from shoal.runs.files import is_free
from shoal.runs.resume import resume
from shoal.runs.runner import Watcher, run
from shoal.spec import Spec, from_table


class PlannedRun(NamedTuple):
    """One run of a comparison."""

    label: str
    spec: Spec
    directory: Path


def plan(
    names: Sequence[str],
    table: Table,
    settings: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    grid: Mapping[str, Sequence[Any]] = MappingProxyType({}),
) -> list[PlannedRun]:
    """All runs, checked before the first one starts.

    A name may set fields of its method or of the spec: `fedprox:mu=0.1,local.lr=0.01`.
    """
    check_seeds(seeds, settings)
    return plan_all(names, table, seeds, grid, out, settings)


def plan_all(
    methods: Sequence[str | Method | Recipe],
    table: Table,
    seeds: Sequence[int],
    grid: Mapping[str, Sequence[Any]],
    out: Path,
    settings: Sequence[str] = (),
) -> list[PlannedRun]:
    """All runs of these methods, by name or as objects, with every combination of the grid's values."""
    labels = [method if isinstance(method, str) else type(method).__name__ for method in methods]
    if len(set(labels)) < len(labels) or not labels:
        raise SpecError(f"every method must be named once, got {' '.join(labels) or 'none'}")
    check_seeds(seeds, [])
    runs = []
    for method, label in zip(methods, labels, strict=True):
        if isinstance(method, str):
            name, fields = split(label, "method")
            chosen = with_settings(with_method(table, name), [*settings, *fields])
        else:
            chosen = {name: value for name, value in table.items() if name != "local"} | {"method": method}
        for values in itertools.product(*grid.values()):
            point = dict(zip(grid, values, strict=True))
            told = ",".join(f"{field}={value}" for field, value in point.items())
            full = f"{label}{':' if '=' not in label else ','}{told}" if told else label
            setting = with_values(chosen, point)
            for seed in seeds:
                folder = out / f"{file_name(full)}-seed{seed}"
                runs.append(PlannedRun(full, from_table({**setting, "seed": seed}), folder))
    return runs


def check_seeds(seeds: Sequence[int], settings: Sequence[str]) -> None:
    """Refuse an empty list of seeds, seeds given twice, and seeds among the settings."""
    if any(setting.split("=")[0].strip() == "seed" for setting in settings):
        raise SpecError("seeds come from --seeds, not from --set seed")
    if not seeds or len(set(seeds)) < len(seeds):
        raise SpecError(
            f"seeds must be different whole numbers such as 0,1,2; got {','.join(map(str, seeds))}"
        )


def split(label: str, table: str) -> tuple[str, list[str]]:
    """Split a label such as `krum:f=2` into the name and the settings of its fields, `method.f=2`."""
    name, *rest = re.split(r"[:,](?=[A-Za-z_][\w.]*=)", label)
    return name, [field if "." in field.split("=")[0] else f"{table}.{field}" for field in rest]


def file_name(label: str) -> str:
    """A label as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.=_-]+", "-", label)


def run_missing(runs: Sequence[PlannedRun], watch: Callable[[PlannedRun], Watcher | None]) -> None:
    """Keep finished runs, resume interrupted ones, and start the others; `report` writes one page for all."""
    for planned in runs:
        if is_free(planned.directory):
            run(planned.spec, planned.directory, watch(planned), report=False)
        elif not RunDirectory.reopen(planned.directory, planned.spec).finished:
            resume(planned.directory, watch(planned), report=False)


def overall(
    runs: Sequence[PlannedRun], add: Callable[[str, int, int], Watcher]
) -> Callable[[PlannedRun], Watcher]:
    """One progress bar for all runs, made by `add` from its label, the total rounds, and the rounds done."""
    kept = [cell for cell in runs if (cell.directory / SUMMARY).exists()]
    label = f"{len(runs)} runs" + (f", {len(kept)} kept" if kept else "")
    done = sum(cell.spec.rounds for cell in kept)
    watch = add(label, sum(cell.spec.rounds for cell in runs), done)
    missing = [cell for cell in runs if cell not in kept]
    before = dict(zip((cell.directory for cell in missing), _running(missing, done), strict=True))
    return lambda cell: lambda record: watch({**record, "round": before[cell.directory] + record["round"]})


def _running(runs: Sequence[PlannedRun], start: int) -> list[int]:
    """The number of rounds before each run starts."""
    return list(itertools.accumulate((cell.spec.rounds for cell in runs), initial=start))[:-1]


def report(runs: Sequence[PlannedRun], out: Path, title: str) -> Path:
    """Write a page that compares the runs; returns its path."""
    from shoal.report.page import write_report  # matplotlib is slow to import, and only needed here
    from shoal.report.runs import read_run

    path = out / REPORT
    write_report([read_run(planned.directory, planned.label) for planned in runs], path, title=title)
    return path
