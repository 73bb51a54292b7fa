"""What an experiment is, and what comes out of it: the paper's numbers beside ours."""

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
Play = Callable[[Sequence[Job]], Mapping[str, Any]]  # plays jobs, and returns their answers by name


class Cell(NamedTuple):
    """A number of the paper, and what it is here. In the paper's unit; None where there is none."""

    row: str
    column: str
    paper: float | None
    ours: float | None
    std: float | None = None  # sample standard deviation over seeds; None for a single number


def cell(row: str, column: str, paper: float | None, values: Sequence[float | None]) -> Cell:
    """A cell from the values of several seeds: their mean and deviation."""
    stat = over_seeds(values)
    if stat is None:
        return Cell(row, column, paper, None)
    return Cell(row, column, paper, stat.mean, stat.std if len(values) > 1 else None)


class Table(NamedTuple):
    """Cells that belong together, in the order of rows and columns."""

    title: str
    cells: Sequence[Cell]
    corner: str = ""  # what stands above the names of the rows
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
        """Whether the paper has any of these numbers."""
        return any(cell.paper is not None for cell in self.cells)

    @property
    def beside(self) -> tuple[list[str], list[list[str]]] | None:
        """Head and lines with the paper's numbers beside ours, for a table of one column."""
        if len(self.columns) > 1:
            return None
        lines = [[cell.row, self.papers(cell), self.ours(cell)] for cell in self.cells]
        if self.compares:
            return [self.corner, "Paper", "Ours"], lines
        return [self.corner, "Ours"], [[row, ours] for row, _, ours in lines]

    def find(self, row: str, column: str) -> Cell | None:
        """The cell in that place."""
        return next((cell for cell in self.cells if (cell.row, cell.column) == (row, column)), None)

    def ours(self, cell: Cell) -> str:
        """Our number as text: `33.1 ± 5.2`, the deviation with two digits; none where it reads as 0."""
        if cell.ours is None:
            return NOTHING
        if cell.std is None or cell.std < 0.5 * 10**-self.decimals:
            return self._plain(cell.ours)
        places = min(max(1 - math.floor(math.log10(cell.std)), 0), self.decimals)
        return f"{cell.ours:.{places}f} ± {cell.std:.{places}f}"

    def papers(self, cell: Cell) -> str:
        """The paper's number as text."""
        return NOTHING if cell.paper is None else self._plain(cell.paper)

    def _plain(self, value: float) -> str:
        """With the table's decimals, as long as these are not more than seven digits in all."""
        whole = len(f"{abs(value):.0f}")
        return f"{value:z.{min(self.decimals, max(7 - whole, 0))}f}"


class Picture(NamedTuple):
    """A figure of the paper, drawn from our numbers."""

    name: str  # of its file
    title: str
    figure: Figure
    remark: str = ""


class Outcome(NamedTuple):
    """What an experiment gave."""

    tables: Sequence[Table]
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = ()  # what a reader must know to judge the numbers
    facts: Mapping[str, str] = {}  # name -> value: what was run


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper, at one or more scales."""

    summary: str
    paper: str
    scales: Mapping[Scale, Callable[[Play], Outcome]]
