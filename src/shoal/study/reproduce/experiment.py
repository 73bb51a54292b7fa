"""The types of an experiment and its findings: the paper's numbers next to ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from matplotlib.figure import Figure

from shoal.report.table import NOTHING, over_seeds
from shoal.study.jobs import Job

Scale = Literal["quick", "machine", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
RunJobs = Callable[[Sequence[Job]], Mapping[str, Any]]  # runs jobs, and returns their answers by name


class PaperNumber(NamedTuple):
    """A number of a paper's table next to ours, in the paper's unit; None if there is none."""

    row: str
    column: str
    paper: float | None
    ours: float | None
    std: float | None = None  # sample standard deviation over seeds; None for a single number


def compared(row: str, column: str, paper: float | None, values: Sequence[float | None]) -> PaperNumber:
    """The paper's number next to the mean and the standard deviation of ours over several seeds."""
    stat = over_seeds(values)
    if stat is None:
        return PaperNumber(row, column, paper, None)
    return PaperNumber(row, column, paper, stat.mean, stat.std if len(values) > 1 else None)


class ComparisonTable(NamedTuple):
    """A table of the paper with our numbers added; rows and columns are in the order of the cells."""

    title: str
    cells: Sequence[PaperNumber]
    corner: str = ""  # the text above the names of the rows
    decimals: int = 2
    remark: str = ""

    @property
    def rows(self) -> list[str]:
        """The names of the rows."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(dict.fromkeys(cell.column for cell in self.cells))

    @property
    def compares(self) -> bool:
        """Whether the paper reports any of these numbers."""
        return any(cell.paper is not None for cell in self.cells)

    @property
    def side_by_side(self) -> tuple[list[str], list[list[str]]] | None:
        """Header and rows with the paper's numbers next to ours; None for a table with several columns."""
        if len(self.columns) > 1:
            return None
        lines = [[cell.row, self.papers(cell), self.ours(cell)] for cell in self.cells]
        if self.compares:
            return [self.corner, "Paper", "Ours"], lines
        return [self.corner, "Ours"], [[row, ours] for row, _, ours in lines]

    def find(self, row: str, column: str) -> PaperNumber | None:
        """The cell at this row and column; None if there is none."""
        return next((cell for cell in self.cells if (cell.row, cell.column) == (row, column)), None)

    def ours(self, cell: PaperNumber) -> str:
        """Our number as text: `33.1 ± 5.2`; the deviation has two digits, and is omitted if it is 0 then."""
        if cell.ours is None:
            return NOTHING
        if cell.std is None or cell.std < 0.5 * 10**-self.decimals:
            return self._plain(cell.ours)
        places = min(max(1 - math.floor(math.log10(cell.std)), 0), self.decimals)
        return f"{cell.ours:.{places}f} ± {cell.std:.{places}f}"

    def papers(self, cell: PaperNumber) -> str:
        """The paper's number as text."""
        return NOTHING if cell.paper is None else self._plain(cell.paper)

    def _plain(self, value: float) -> str:
        """A number with the table's decimals, but at most seven digits in total."""
        whole = len(f"{abs(value):.0f}")
        return f"{value:z.{min(self.decimals, max(7 - whole, 0))}f}"


class Picture(NamedTuple):
    """A figure of the paper, drawn from our numbers."""

    name: str  # of its file
    title: str
    figure: Figure
    remark: str = ""


class Findings(NamedTuple):
    """The outcome of an experiment."""

    tables: Sequence[ComparisonTable]
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = ()  # context that a reader needs to judge the numbers
    facts: Mapping[str, str] = {}  # name -> value: the main settings


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper, at one or more scales."""

    summary: str
    paper: str
    scales: Mapping[Scale, Callable[[RunJobs], Findings]]
