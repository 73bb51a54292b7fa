"""What a person sees in the terminal: progress bars, tables, errors. All but results goes to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from shoal.runner import Record, Watcher


def stderr() -> Console:
    """For progress and remarks."""
    return Console(stderr=True, highlight=False)


def stdout() -> Console:
    """For results."""
    return Console(highlight=False)


class Bars:
    """A bar a run, with the latest accuracy beside it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def add(self, label: str, rounds: int, done: int = 0) -> Watcher:
        """A bar for a run; returns what the run should tell its rounds to."""
        task: TaskID = self._progress.add_task(label, total=rounds, completed=done, score="")

        def watch(record: Record) -> None:
            score = _score(record)
            changes = {"score": score} if score else {}
            self._progress.update(task, completed=record["round"], **changes)  # type: ignore[arg-type]

        return watch


@contextmanager
def bars() -> Iterator[Bars]:
    """Progress bars, shown only where somebody can watch them."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[score]}", style="bold"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    console = stderr()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield Bars(progress)


def _score(record: Mapping[str, Any]) -> str:
    if record.get("accuracy") is not None:
        return f"{100 * record['accuracy']:.1f} %"
    return f"mse {record['mse']:.4g}" if record.get("mse") is not None else ""


def show_table(title: str | None, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout: texts to the left, numbers to the right; without a head if none is given."""
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


def complain(message: str) -> None:
    """An error, in one or two lines."""
    print(f"shoal: {message}", file=sys.stderr)
