"""The runs of an experiment: rows by columns, as in the paper's table, with several seeds per cell.

A run's spec starts from the settings that all runs share; those of its column and then of its row override
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from shoal.config import Table
from shoal.spec import from_table
from shoal.study.compare import file_name
from shoal.study.jobs import Job
from shoal.study.reproduce.experiment import RunJobs

Measure = Callable[..., Any]  # takes the result of a run, and options from the scale; see `Job`
CellKey = tuple[str, str]  # the labels of a row and of a column


@dataclass(frozen=True)
class Line:
    """A row or a column of the grid."""

    spec: dict = field(default_factory=dict)  # settings of its own runs
    job: str = ""  # replaces the label in the names of its jobs
    columns: tuple[str, ...] = ()  # for a row: the only columns in which it has runs
    like: str = ""  # for a column that the paper lacks: the paper's closest column


@dataclass(frozen=True)
class Grid:
    """The runs of an experiment at one scale."""

    spec: Mapping[str, Any]  # the settings that all runs share
    rows: Mapping[str, Line]
    columns: Mapping[str, Line]
    job: str  # a template for the names of jobs: {row}, {column}, {seed}, and fields of the spec
    measure: Measure
    seeds: int  # per cell: 0, 1, ...
    seeds_of: Mapping[str, int]  # deviating numbers of seeds, by row or by "row, column"

    @property
    def cells(self) -> list[CellKey]:
        """All cells with runs, column by column."""
        return [
            (row, column)
            for column in self.columns
            for row, line in self.rows.items()
            if not line.columns or column in line.columns
        ]

    def table(self, cell: CellKey) -> Table:
        """The settings of a cell's runs, without the seed."""
        row, column = cell
        return merged(self.spec, self.columns[column].spec, self.rows[row].spec)

    def jobs(self, cell: CellKey) -> list[Job]:
        """The runs of a cell, one per seed."""
        row, column = cell
        table = self.table(cell)
        labels = {"row": self.rows[row].job or row, "column": self.columns[column].job or column}
        found = []
        for seed in range(self.seeds_of.get(f"{row}, {column}", self.seeds_of.get(row, self.seeds))):
            name = self.job.format_map({**table, **labels, "seed": seed})
            spec = from_table({**table, "seed": seed})
            found.append(Job(file_name(name.replace(" = ", "=")), spec, self.measure))
        return found

    def run(self, run_jobs: RunJobs) -> dict[CellKey, list[Any]]:
        """Run all jobs; returns the answers of each cell, one per seed."""
        jobs = {cell: self.jobs(cell) for cell in self.cells}
        # the first seed of every cell comes first, so that an interrupted experiment has some of everything
        in_order = [job for some in zip_longest(*jobs.values()) for job in some if job is not None]
        answers = run_jobs(in_order)
        return {cell: [answers[job.name] for job in some] for cell, some in jobs.items()}


def merged(*tables: Mapping[str, Any]) -> Table:
    """Merge tables recursively; the last value of a field counts."""
    found: Table = {}
    for table in tables:
        for name, value in table.items():
            inner = found.get(name)
            if isinstance(inner, dict) and isinstance(value, dict):
                value = merged(inner, value)
            found[name] = value
    return found
