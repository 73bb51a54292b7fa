"""Data files of experiments: the runs, the paper's numbers, and the tables that compare them with ours.

A file may extend others: `extends = ["fedqp.toml"]` includes what experiments of a paper share. Titles,
remarks, notes and facts are templates. They may use fields of the first run's spec, such as {rounds} or
{local[lr]:g}, the scale's `values`, and {over_seeds}; notes may also use the `words` of the analysis.
"""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from shoal.config import Table, read, unknown
from shoal.core.errors import SpecError
from shoal.study.reproduce.grid import Grid, Line, Measure, merged

UNITS: Mapping[str, float] = {"": 1, "%": 100, "GiB": 2.0**-30}  # factors for numbers in answers


class PaperNumbers(NamedTuple):
    """Numbers of a paper by row and column label, in either order."""

    by_labels: Mapping[tuple[str, str], float]

    def find(self, row: str, column: str) -> float | None:
        """The number for this row and column; None if the paper has none."""
        return self.by_labels.get((row, column), self.by_labels.get((column, row)))

    @property
    def lines(self) -> list[str]:
        """The names of the lists in the data file."""
        return list(dict.fromkeys(line for line, _ in self.by_labels))


def _paper_numbers(table: Table, path: str) -> PaperNumbers:
    """Read lists of numbers, and `order`, the labels to which the numbers of each list belong."""
    order: Sequence[str] = table["order"]
    found: dict[tuple[str, str], float] = {}
    for line, numbers in table.items():
        if line == "order":
            continue
        if len(numbers) > len(order):
            raise SpecError(f"{path}.{line} has {len(numbers)} numbers, but order names only {len(order)}")
        found |= {(line, other): number for other, number in zip(order, numbers, strict=False)}
    return PaperNumbers(found)


@dataclass(frozen=True)
class Value:
    """One number per run, shown as a column of a table."""

    field: str  # of the run's answer
    label: str = ""  # of the column; if the grid's column has a label too, this one comes second
    unit: Literal["", "%", "GiB"] = ""
    # for a list with one number per evaluated round: the last one, or a statistic of the last `tail` rounds
    over_rounds: Literal["", "last", "mean", "deviation"] = ""
    paper: str = ""  # the name of the column in the paper's numbers, if it is not the label

    def of(self, answer: Mapping[str, Any], last_rounds: range) -> float | None:
        """The number for one run."""
        found = answer[self.field]
        if self.over_rounds == "last":
            found = found[-1]
        elif self.over_rounds:
            found = [v for r, v in zip(answer["rounds"], found, strict=True) if r in last_rounds]
            found = statistics.fmean(found) if self.over_rounds == "mean" else deviation(found)
        return None if found is None else UNITS[self.unit] * found


@dataclass(frozen=True)
class TableSpec:
    """One table of the page."""

    title: str
    values: tuple[Value, ...]
    numbers: str = ""  # the name of the paper's numbers to compare with
    minus: str = ""  # a row that is subtracted from all others, paired by seed
    decimals: int = 2
    remark: str = "{over_seeds}"


@dataclass(frozen=True)
class ScaleSpec:
    """The settings that a scale adds to a data file."""

    seeds: int
    seeds_of: dict = field(default_factory=dict)  # deviating numbers of seeds, by row or by "row, column"
    rows: tuple[str, ...] = ()  # the rows that are run; empty: all
    columns: tuple[str, ...] = ()
    spec: dict = field(default_factory=dict)
    values: dict = field(default_factory=dict)  # numbers for templates and analyses
    measure: dict = field(default_factory=dict)  # arguments of the function that measures
    other_setting: bool = False  # unlike the paper's, so that only differences between rows are comparable
    facts: dict = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataFile:
    """The content of a data file."""

    summary: str
    reference: str  # the paper
    scales: dict  # name -> `ScaleSpec`
    rows: dict  # label -> `Line`
    columns: dict = field(default_factory=lambda: {"": {}})
    job: str = "{row}, {column}, seed{seed}"
    spec: dict = field(default_factory=dict)
    corner: str = ""  # the text above the names of the rows
    tables: tuple[TableSpec, ...] = ()
    numbers: dict = field(default_factory=dict)  # name -> see `PaperNumbers`
    facts: dict = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def scale(self, name: str) -> ScaleSpec | None:
        """The settings of a scale; None if the file does not have it."""
        found: ScaleSpec | None = None
        if name in self.scales:
            found = read(ScaleSpec, self.scales[name], f"scales.{name}", {})
        return found

    def grid(self, scale: ScaleSpec, measure: Measure) -> Grid:
        """The grid of runs at a scale."""
        return Grid(
            merged(self.spec, scale.spec),
            _lines(self.rows, scale.rows, "row"),
            _lines(self.columns, scale.columns, "column"),
            self.job,
            partial(measure, **scale.measure) if scale.measure else measure,
            scale.seeds,
            scale.seeds_of,
        )

    def paper_numbers(self) -> dict[str, PaperNumbers]:
        """The paper's numbers by name."""
        return {name: _paper_numbers(table, f"numbers.{name}") for name, table in self.numbers.items()}


def _lines(tables: Mapping[str, Table], chosen: Sequence[str], kind: str) -> dict[str, Line]:
    """The chosen rows or columns, in that order; all if none are chosen."""
    for label in chosen:
        if label not in tables:
            raise unknown(repr(label), label, tables, kind)
    return {label: read(Line, tables[label], f"{kind}s.{label}", {}) for label in chosen or tables}


def load(path: Path) -> DataFile:
    """Load a data file, together with the files it extends."""
    file: DataFile = read(DataFile, _load(path), path.stem, {})
    return file


def _load(path: Path) -> Table:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return merged(*(_load(path.parent / name) for name in table.pop("extends", ())), table)


def deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation; None for a single value."""
    return statistics.stdev(values) if len(values) > 1 else None
