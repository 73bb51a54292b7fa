"""The generic experiment: runs what a data file describes, and compares our numbers with the paper's.

A plain table needs no code. An analysis adds what a data file cannot express: it is a function of the results
that makes more tables, draws pictures, or computes words for the notes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from shoal.core.errors import SpecError
from shoal.runs.result import Result
from shoal.study.reproduce.datafile import DataFile, PaperNumbers, ScaleSpec, TableSpec, Value, load
from shoal.study.reproduce.experiment import (
    SCALES,
    ComparisonTable,
    Experiment,
    Findings,
    PaperNumber,
    Picture,
    RunJobs,
    compared,
)
from shoal.study.reproduce.grid import CellKey, Grid, Measure


class Analysis(NamedTuple):
    """The evaluation of an experiment's results."""

    tables: Sequence[ComparisonTable]  # all tables of the page
    pictures: Sequence[Picture] = ()
    words: Mapping[str, Any] = {}  # for the templates of the notes


@dataclass(frozen=True)
class Results:
    """The answers of all runs, with the context needed to make tables from them."""

    grid: Grid
    answers: Mapping[CellKey, Sequence[Any]]  # one per seed
    numbers: Mapping[str, PaperNumbers]
    scale: ScaleSpec
    corner: str = ""

    @cached_property
    def context(self) -> dict[str, Any]:
        """The names that templates may use."""
        first = self.grid.table(self.grid.cells[0])
        return {**first, **self.scale.values, "over_seeds": self._over_seeds()}

    def text(self, template: str, **words: Any) -> str:
        """A template, filled in and joined into one line."""
        return " ".join(template.format_map({**self.context, **words}).split())

    def _over_seeds(self) -> str:
        counts = {cell: len(answers) for cell, answers in self.answers.items()}
        most = max(counts.values())
        fewer = {row: count for (row, _), count in counts.items() if count < most}
        rest = "".join(f", {count} of {row}" for row, count in fewer.items())
        return f"Mean and standard deviation over {most} seeds{rest}." if most > 1 else "One seed."

    def column(self, column: str) -> dict[str, Sequence[Any]]:
        """The answers of a column by row."""
        return {row: answers for (row, name), answers in self.answers.items() if name == column}

    def values(self, cell: CellKey, value: Value) -> list[float | None]:
        """A number from the cell's runs, one per seed."""
        rounds = int(self.grid.table(cell)["rounds"])
        last = range(rounds - int(self.scale.values.get("tail", rounds)) + 1, rounds + 1)
        return [value.of(answer, last) for answer in self.answers[cell]]

    def table(self, spec: TableSpec) -> ComparisonTable:
        """A table as described by the data file; cells without any number are left out."""
        found = [
            self._compared(spec, value, cell)
            for cell in self.answers
            if cell[0] != spec.minus
            for value in spec.values
        ]
        cells = [cell for cell in found if cell.ours is not None or cell.paper is not None]
        title, corner, remark = map(self.text, (spec.title, self.corner, spec.remark))
        return ComparisonTable(title, cells, corner, spec.decimals, remark)

    def _compared(self, spec: TableSpec, value: Value, cell: CellKey) -> PaperNumber:
        row, column = cell
        label = self._label(column, value)
        numbers = self.numbers.get(spec.numbers, PaperNumbers({}))
        values = self.values(cell, value)
        if not spec.minus:
            paper = numbers.find(row, value.paper or label)
            return compared(row, label, None if self.scale.other_setting else paper, values)
        base = self.values((spec.minus, column), value)
        there = self._label(self.grid.columns[column].like or column, value)
        paper = _difference(numbers.find(row, there), numbers.find(spec.minus, there))
        # over the seeds that both have
        return compared(row, label, paper, [_difference(*pair) for pair in zip(values, base, strict=False)])

    def _label(self, column: str, value: Value) -> str:
        return ", ".join(label for label in (column, self.text(value.label)) if label)

    def with_rows_ending(self, suffix: str) -> Results:
        """The results of the rows whose labels end in `suffix`, with the suffix removed."""
        labels = {row: row.removesuffix(suffix) for row in self.grid.rows if row.endswith(suffix)}
        grid = replace(self.grid, rows={labels[row]: self.grid.rows[row] for row in labels})
        answers = {(labels[r], column): a for (r, column), a in self.answers.items() if r in labels}
        return replace(self, grid=grid, answers=answers)


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


Analyse = Callable[[Results, Sequence[ComparisonTable]], Analysis]


def plain(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """The analysis with only the tables of the data file."""
    return Analysis(tables)


def summary_and_curve(result: Result) -> dict[str, Any]:
    """All values of summary.json, and the accuracies (%) by evaluated round."""
    evaluated = [record for record in result.records if record.get("accuracy") is not None]
    return {
        **result.summary,
        "rounds": [record["round"] for record in evaluated],
        "accuracies": [100 * record["accuracy"] for record in evaluated],
    }


@dataclass(frozen=True)
class TableExperiment:
    """An experiment of a data file at one scale."""

    grid: Grid
    file: DataFile
    scale: ScaleSpec
    analyse: Analyse

    def of_columns(self, text: str) -> TableExperiment:
        """The same experiment, for the columns with this text in their names."""
        columns = {label: line for label, line in self.grid.columns.items() if text in label}
        if not columns:
            raise SpecError(f"no column has {text!r} in its name; there are: {'; '.join(self.grid.columns)}")
        return replace(self, grid=replace(self.grid, columns=columns))

    def __call__(self, run_jobs: RunJobs) -> Findings:
        """Run all jobs, and compare our numbers with the paper's."""
        answers = self.grid.run(run_jobs)
        results = Results(self.grid, answers, self.file.paper_numbers(), self.scale, self.file.corner)
        specs = [spec for spec in self.file.tables if not spec.minus or spec.minus in self.grid.rows]
        analysis = self.analyse(results, [results.table(spec) for spec in specs])
        notes = [results.text(note, **analysis.words) for note in (*self.scale.notes, *self.file.notes)]
        facts = {name: results.text(fact) for name, fact in {**self.file.facts, **self.scale.facts}.items()}
        return Findings(analysis.tables, analysis.pictures, notes, facts)


def experiment(path: Path, analyse: Analyse = plain, measure: Measure = summary_and_curve) -> Experiment:
    """The experiment of a data file; `measure` determines the answer of each run."""
    file = load(path)
    scales = {
        name: TableExperiment(file.grid(scale, measure), file, scale, analyse)
        for name in SCALES
        if (scale := file.scale(name)) is not None
    }
    return Experiment(file.summary, file.reference, scales)
