"""The command reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli.options import JsonFlag, interruptible, loading
from shoal.core.errors import SpecError

if TYPE_CHECKING:
    from shoal.study.reproduce.experiment import Table


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The experiment; without it, a list of all.")
    ] = None,
    scale: Annotated[
        str, typer.Option(metavar="quick|machine|paper", help="How much of the paper's size to run.")
    ] = "quick",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where to write, and to go on; else runs/NAME-SCALE."),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Repeat a table or figure of a paper, and set the paper's numbers beside ours.

    The same command goes on where it was stopped.
    """
    with loading():
        from shoal.runs.directory import REPORT, to_json
        from shoal.study.reproduce import EXPERIMENTS
        from shoal.study.reproduce.perform import chosen, perform
        from shoal.terminal import stderr, stdout

    if name is None:
        if out is not None:
            raise SpecError("--out needs the name of an experiment; `shoal reproduce` lists them")
        _list(json)
        return
    chosen(name, scale, EXPERIMENTS)
    folder = out or Path("runs") / f"{name}-{scale}"
    with interruptible("the same command goes on where it was"):
        done = perform(name, scale, folder, EXPERIMENTS)
    if not done.fresh:
        stderr().print(f"All runs were in {folder} already; choose another --out to run them anew")
    if json:
        print(to_json({"out": str(folder), "report": str(folder / REPORT), **done.result}))
        return
    for table in done.outcome.tables:
        _show(table)
    for note in done.outcome.notes:
        stdout().print(note)
    stdout().print(f"Report: {folder / REPORT}", soft_wrap=True)


def _list(json: bool) -> None:
    from shoal.runs.directory import to_json
    from shoal.study.reproduce import EXPERIMENTS
    from shoal.terminal import show_table

    if json:
        entries = {
            name: {"summary": e.summary, "paper": e.paper, "scales": list(e.scales)}
            for name, e in EXPERIMENTS.items()
        }
        print(to_json(entries))
        return
    rows = [[name, f"{e.summary} ({e.paper})", ", ".join(e.scales)] for name, e in EXPERIMENTS.items()]
    show_table(None, ["Experiment", "What it repeats", "Scales"], rows)


def _show(table: Table) -> None:
    from shoal.terminal import show_table

    if table.beside is not None:
        show_table(f"{table.title}: {table.columns[0]}", *table.beside)
        return
    rows = []
    for row in table.rows:
        found = [table.find(row, column) for column in table.columns]
        rows.append([row, *("" if cell is None else table.ours(cell) for cell in found)])
        if table.compares:
            rows.append(["  paper", *("" if cell is None else table.papers(cell) for cell in found)])
    show_table(table.title, [table.corner, *table.columns], rows)
