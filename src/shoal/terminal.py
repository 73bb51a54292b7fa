"""Output in the terminal: progress bars and tables. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.style import Style
from rich.table import Table
from rich.text import Text

from shoal.report.heatmap_cells import HeatMap, HeatMapCell, colours
from shoal.runs.progress_line import ProgressLine, score_text

if TYPE_CHECKING:  # these import torch, which commands that only list parts do not need
    from shoal.runs.record import Record
    from shoal.runs.runner import Watcher


def stderr() -> Console:
    """The console for progress and notices."""
    return Console(stderr=True, highlight=False)


def stdout() -> Console:
    """The console for results."""
    return Console(highlight=False)


FOLDED = 20  # characters; a column of text may become this narrow


class Bars:
    """One progress bar per run, with its latest accuracy, and one per file that is downloaded."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._files: dict[str, TaskID] = {}

    def add(self, label: str, rounds: int, done: int = 0) -> Watcher:
        """Add a bar for a run; returns the watcher that updates it."""
        if self._progress.disable:
            return ProgressLine(label, rounds, sys.stderr, rewrite=False)
        task: TaskID = self._progress.add_task(label, total=rounds, completed=done, score="")

        def watch(record: Record) -> None:
            score = score_text(record)
            changes = {"score": score} if score else {}
            self._progress.update(task, completed=record["round"], **changes)  # type: ignore[arg-type]

        return watch

    def download(self, path: str, came: int, total: int) -> None:
        """Show how much of a file has been downloaded, in kilobytes."""
        if path not in self._files:
            self._files[path] = self._progress.add_task(f"downloading {path}", total=None, score="kB")
        self._progress.update(self._files[path], completed=came // 1000, total=total // 1000 or None)


@contextmanager
def bars() -> Iterator[Bars]:
    """Progress bars, shown only in an interactive terminal."""
    from shoal.data.fetch import watched as watched_downloads  # imports torch

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[score]}", style="bold"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    console = stderr()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        shown = Bars(progress)
        with watched_downloads(shown.download):
            yield shown


def show_table(title: str | None, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to stdout: text is left-aligned, numbers are right-aligned; the head is optional.

    If it is too wide, columns of numbers are left out from the right, and a line says which.
    """
    numeric = [
        position > 0 and bool(rows) and all(not row[position][:1].isalpha() for row in rows)
        for position in range(len(rows[0]) if rows else len(head))
    ]
    kept = _fitting(head, rows, numeric)
    left_out = [head[position] for position in range(len(head)) if position not in kept]
    head = [head[position] for position in kept] if head else head
    rows = [[row[position] for position in kept] for row in rows]
    numeric = [numeric[position] for position in kept]
    if title:
        stdout().print(title, style="bold", soft_wrap=True)
    table = Table(
        header_style="bold",
        show_header=bool(head),
        box=SIMPLE_HEAD,
    )
    for position, number in enumerate(numeric):
        whole = number or position == 0
        name = head[position] if head else ""
        table.add_column(name, justify="right" if number else "left", overflow="fold", no_wrap=whole)
    for row in rows:
        table.add_row(*row)
    stdout().print(table)
    if left_out:
        stdout().print(
            f"No room for: {', '.join(left_out)}. The report has them, and --json.", soft_wrap=True
        )


def _fitting(head: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> list[int]:
    """The columns that fit side by side; a column of text can be folded, one of numbers cannot."""
    lines = [*([head] if head else []), *rows]
    widths = [max(len(line[position]) for line in lines) for position in range(len(numeric))]
    kept = list(range(len(numeric)))

    def width() -> int:
        return sum(3 + (widths[p] if numeric[p] or p == 0 else min(widths[p], FOLDED)) for p in kept) + 1

    while width() > stdout().width and any(numeric[p] for p in kept[2:]):
        kept.remove(max(p for p in kept[2:] if numeric[p]))
    return kept


def show_heat(heat: HeatMap, corner: str) -> None:
    """Print a heat map to stdout; if it is too wide, the remaining columns follow below."""
    console = stdout()
    widths = [max(7, *map(len, _words(column))) + 1 for column in heat.columns]  # and the gap between columns
    room, first = console.width - max(len(corner), *map(len, heat.rows)) - 4, 0
    console.print(heat.title, style="bold", soft_wrap=True)
    while first < len(widths):
        last = first + 1
        while last < len(widths) and sum(widths[first : last + 1]) <= room:
            last += 1
        table = Table(box=SIMPLE_HEAD, padding=0)
        table.add_column(corner, no_wrap=True)
        for column in heat.columns[first:last]:
            table.add_column("\n".join(_words(column)), justify="right", vertical="bottom", no_wrap=True)
        for name, shades in heat.rows.items():
            table.add_row(name, *(_coloured(shade) for shade in shades[first:last]))
        console.print(table)
        first = last


def _words(name: str) -> list[str]:
    return name.replace("_", " ").split()


def _coloured(shade: HeatMapCell) -> Text:
    if shade.depth is None:
        return Text(shade.text)
    ground, ink = colours(shade.depth)
    return Text(f" {shade.text} ", Style(color=ink, bgcolor=ground))
