"""Output in the terminal: progress bars and tables. Results go to stdout, everything else to stderr."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.style import Style
from rich.table import Table
from rich.text import Text

from shoal.report.heatmap_cells import Heat, Shade, colours

if TYPE_CHECKING:  # these import torch, which commands that only list parts do not need
    from shoal.runs.record import Record
    from shoal.runs.runner import Watcher


def stderr() -> Console:
    """The console for progress and remarks."""
    return Console(stderr=True, highlight=False)


def stdout() -> Console:
    """The console for results."""
    return Console(highlight=False)


class Bars:
    """One progress bar per run, with its latest accuracy, and one per file that is downloaded."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._files: dict[str, TaskID] = {}

    def add(self, label: str, rounds: int, done: int = 0) -> Watcher:
        """Add a bar for a run; returns the watcher that updates it."""
        task: TaskID = self._progress.add_task(label, total=rounds, completed=done, score="")

        def watch(record: Record) -> None:
            score = _score(record)
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


def _score(record: Mapping[str, Any]) -> str:
    if record.get("accuracy") is not None:
        return f"{100 * record['accuracy']:.1f} %"
    return f"mse {record['mse']:.4g}" if record.get("mse") is not None else ""


def show_table(title: str | None, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to stdout: text is left-aligned, numbers are right-aligned; the head is optional."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        show_header=bool(head),
        box=SIMPLE_HEAD,
    )
    for position in range(len(rows[0]) if rows else len(head)):
        first = position == 0
        numeric = not first and bool(rows) and all(not row[position][:1].isalpha() for row in rows)
        name = head[position] if head else ""
        table.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=first)
    for row in rows:
        table.add_row(*row)
    stdout().print(table)


def show_heat(heat: Heat, corner: str) -> None:
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


def _coloured(shade: Shade) -> Text:
    if shade.depth is None:
        return Text(shade.text)
    ground, ink = colours(shade.depth)
    return Text(f" {shade.text} ", Style(color=ink, bgcolor=ground))
