"""The command reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli.options import JsonFlag, gc_paused_for_imports, interruptible
from shoal.core.errors import SpecError

if TYPE_CHECKING:
    from shoal.study.reproduce.experiment import ComparisonTable


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The experiment; leave it out for a list.")
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            metavar="quick|machine|paper", help="Size: a first look, about an hour, or as in the paper."
        ),
    ] = "quick",
    only: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help='Only the columns whose names contain this text, such as "beta = 0.1".'
        ),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Folder to write to, or to continue in; default runs/NAME-SCALE."
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Reproduce a table or figure of a paper, and compare our numbers with the paper's.

    After an interruption, the same command continues where it stopped.
    """
    with gc_paused_for_imports():
        from shoal.runs.directory import REPORT
        from shoal.runs.json_text import to_json
        from shoal.study.reproduce import EXPERIMENTS
        from shoal.study.reproduce.run_experiment import chosen, perform
        from shoal.terminal import stderr, stdout

    if name is None or name == "list":
        if out is not None:
            raise SpecError("--out needs the name of an experiment; `shoal reproduce` lists them")
        _list(json)
        return
    chosen(name, scale, EXPERIMENTS, only)
    folder = out or Path("runs") / f"{name}-{scale}"
    with interruptible(lambda: "the same command continues where it stopped"):
        done = perform(name, scale, folder, EXPERIMENTS, only)
    if done.kept and not done.fresh:
        stderr().print(f"All runs were in {folder} already; choose another --out to run them again")
    if json:
        print(to_json({"out": str(folder), "report": str(folder / REPORT), **done.result}))
        return
    for table in done.findings.tables:
        _show(table)
    for note in done.findings.notes:
        stdout().print(note)
    stdout().print(f"Report: {folder / REPORT}", soft_wrap=True)


def _list(json: bool) -> None:
    from shoal.runs.json_text import to_json
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
    show_table(None, ["Experiment", "Reproduces", "Scales"], rows)


def _show(table: ComparisonTable) -> None:
    from shoal.terminal import show_table

    if table.side_by_side is not None:
        show_table(f"{table.title}: {table.columns[0]}", *table.side_by_side)
        return
    rows = []
    for row in table.rows:
        found = [table.find(row, column) for column in table.columns]
        rows.append([row, *("" if cell is None else table.ours(cell) for cell in found)])
        if table.compares:
            rows.append(["  paper", *("" if cell is None else table.papers(cell) for cell in found)])
    show_table(table.title, [table.corner, *table.columns], rows)
