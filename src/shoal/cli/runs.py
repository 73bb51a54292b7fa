"""Commands that run federations and check their output: run, resume, verify, compare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli.drawing import Draw, drawing
from shoal.cli.options import (
    FILES,
    TABLES,
    JsonFlag,
    SetOption,
    SpecFile,
    folder_and_table,
    free_folder,
    gc_paused_for_imports,
    grid_of,
    interruptible,
    numbers,
    own_modules,
    print_error,
)
from shoal.core.errors import SpecError

if TYPE_CHECKING:
    from shoal.report.table import Stat

FEW_CLIENTS = 20  # the terminal shows the results of each client up to this number
SHORT_TITLES = {  # of the columns that fit into a terminal
    "final_accuracy": "Accuracy %",
    "final_mse": "MSE",
    "max_accuracy": "Max %",
    "mean_client_accuracy": "Clients %",
    "worst_client_accuracy": "Worst %",
    "finetuned_mean_client_accuracy": "Tuned %",
    "bytes_up": "Up",
    "seconds": "Time",
}


def run(
    spec: SpecFile = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="Method to use in place of the spec's.")
    ] = None,
    settings: SetOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="New directory for the run; without it, one in runs/."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="NAME", help="Engine to run the clients on: local, ray or flower.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Run a federation; write its record, its model and a report."""
    if out is not None and out.suffix in (*FILES, *TABLES):
        raise SpecError(f"--out {out} must be a folder; for a page: shoal report DIR --out page.html")
    changes = [*(settings or []), *([f"engine.name={engine}"] if engine else [])]
    with drawing() as draw:
        folder = _run(spec, method, changes, out, draw)
    _show_run(folder, json)


def _run(spec: Path | None, method: str | None, settings: list[str], out: Path | None, draw: Draw) -> Path:
    """Run a federation, and return the folder of the run."""
    with gc_paused_for_imports():
        from shoal.overrides import with_method, with_settings
        from shoal.runs.directory import REPORT
        from shoal.runs.runner import run as run_spec
        from shoal.spec import from_table, load_table
        from shoal.terminal import bars

    own_modules()
    table = {} if spec is None else load_table(spec)
    if method is not None:
        table = with_method(table, method)
    chosen = from_table(with_settings(table, settings))
    folder = out or free_folder(f"{chosen.method_name}-{chosen.task.dataset}")
    with interruptible(_how_to_go_on(folder)), bars() as shown:
        run_spec(chosen, folder, shown.add(chosen.method_name, chosen.rounds), report=False)
        if not (folder / REPORT).exists():  # a federation over Flower has written its own report
            draw(folder)
    return folder


def resume(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the run.")],
    rounds: Annotated[
        int | None,
        typer.Option(metavar="N", help="Total rounds to continue to, also after the end of the run."),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Continue an interrupted run; the result is the same, bit for bit."""
    with gc_paused_for_imports():
        from shoal.runs.directory import REPORT, RunDirectory
        from shoal.runs.resume import resume as resume_run
        from shoal.runs.runner import write_run_report
        from shoal.terminal import bars, stderr

    own_modules()
    folder, chosen = RunDirectory.open(directory)
    if folder.finished and rounds is None:
        stderr().print(f"{directory} is finished: nothing to do; --rounds makes it longer")
        if not (directory / REPORT).exists():
            write_run_report(directory)
    else:
        with interruptible(_how_to_go_on(directory)), bars() as shown:
            resume_run(directory, shown.add(chosen.method_name, rounds or chosen.rounds), rounds=rounds)
    _show_run(directory, json)


def verify(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the run.")],
    json: JsonFlag = False,
) -> None:
    """Check every file of a run by its hash, and the model against the summary, without running anything."""
    from json import dumps

    from shoal.runs.verify import verify as check

    found = check(directory)
    if json:
        print(dumps({"directory": str(directory), **found._asdict()}))
    elif not found.flaws:
        state = "finished" if found.finished else "unfinished"
        print(f"{directory} is unchanged: {found.files} files, {found.rounds} rounds, {state}")
    if found.flaws:
        for flaw in found.flaws:
            print_error(flaw)
        raise typer.Exit(2)


def compare(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", help="Methods to compare, optionally with fields: fedprox:mu=0.1."),
    ],
    spec: Annotated[
        Path | None,
        typer.Option(metavar="SPEC.toml", help="Spec shared by all methods; without one, the defaults."),
    ] = None,
    seeds: Annotated[
        str, typer.Option(help="Seeds, such as 0,1,2 or 0-4; each method runs with every seed.")
    ] = "0,1,2",
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid", metavar="FIELD=VALUE,...", help="Run every value: local.lr=0.01,0.1. Can be repeated."
        ),
    ] = None,
    settings: SetOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder for all runs, or a table: x.csv, x.tex, x.md; default in runs/.",
        ),
    ] = None,
    format: Annotated[
        str | None, typer.Option("--format", metavar="csv|latex|markdown", help="Format of a printed table.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Compare methods on the same spec: mean and standard deviation over several seeds.

    If --out holds part of the same comparison already, only the missing runs are started.
    """
    with gc_paused_for_imports():
        from shoal.overrides import value_of
        from shoal.report.paper_table import (
            ENDINGS,
            FORMS,
            difference_text,
            main_metric,
            paired,
            paper_table,
        )
        from shoal.report.runs import read_run
        from shoal.report.table import comparison_rows, shown_columns, stat_text
        from shoal.runs.files import write_atomic
        from shoal.runs.json_text import to_json
        from shoal.spec import load_table
        from shoal.study import compare as comparison
        from shoal.terminal import bars, show_table, stdout

    own_modules()
    folder, file = folder_and_table(out, "compare")
    if format is not None and format not in FORMS:
        raise SpecError(f"--format must be one of {', '.join(FORMS)}; got {format!r}")
    table = {} if spec is None else load_table(spec)
    values = {field: list(map(value_of, texts)) for field, texts in grid_of(grid or []).items()}
    cells = comparison.plan(names, table, settings or [], numbers(seeds), folder, values)
    with interruptible(lambda: "the same command continues where it stopped"), bars() as shown:
        comparison.run_missing(cells, comparison.overall(cells, shown.add))
    title = f"{' against '.join(names)} on {cells[0].spec.task.dataset}"
    page = comparison.report(cells, folder, title)
    views = [read_run(cell.directory, cell.label) for cell in cells]
    rows = comparison_rows(views)
    columns, main = shown_columns(rows), main_metric(rows)
    apart = paired(views, main)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, paper_table(views, ENDINGS[file.suffix]).encode())
    if json:
        found = {row.label: {metric: _spread(row.stat(metric)) for metric in columns} for row in rows}
        print(to_json({"out": str(folder), "report": str(page), "seeds": numbers(seeds), "methods": found}))
        return
    head = {metric: SHORT_TITLES[metric] for metric in columns if metric in SHORT_TITLES}
    if "finetuned_mean_client_accuracy" in head:  # both do not fit into eighty columns
        head.pop("max_accuracy", None)
    shown_rows = [[row.label, *(stat_text(metric, row.stat(metric)) for metric in head)] for row in rows]
    if format is not None:
        print(paper_table(views, format), end="")
        return
    titles = ["Method", *head.values()]
    if len(rows) > 1:
        titles[2:2] = [f"- {rows[0].label}"]
        for row, line in zip(rows, shown_rows, strict=True):
            line[2:2] = [difference_text(main, apart.get(row.label))]
    show_table(title, titles, shown_rows)
    if any(difference.half for difference in apart.values()):
        stdout().print("In brackets: the 95 % confidence interval of the difference, paired by seed.")
    stdout().print(f"{f'Table: {file}{chr(10)}' if file else ''}Report: {page}", soft_wrap=True)


def _how_to_go_on(folder: Path) -> Callable[[], str]:
    """The advice after Ctrl-C: none if there is no run yet."""
    return lambda: f"go on with: shoal resume {folder}" if (folder / "spec.toml").exists() else ""


def _spread(stat: Stat | None) -> dict[str, float] | None:
    return None if stat is None else stat._asdict()


def _show_run(folder: Path, json: bool) -> None:
    from shoal.report.client_columns import client_columns
    from shoal.report.runs import read_run
    from shoal.report.table import comparison_rows, shown_columns, stat_text
    from shoal.runs.directory import REPORT
    from shoal.runs.json_text import to_json
    from shoal.terminal import show_table, stderr, stdout

    view = read_run(folder)
    if json:
        print(to_json({"out": str(folder), "report": str(folder / REPORT), **view.summary}))
        return
    (row,) = comparison_rows([view])
    rows = [[column.title, stat_text(m, row.stat(m))] for m, column in shown_columns([row]).items()]
    rounds = view.summary["rounds"]
    show_table(f"{view.label}, {rounds} round{'s' if rounds > 1 else ''}", [], rows)
    if len(view.summary.get("clients", ())) <= FEW_CLIENTS:
        columns = client_columns(view)
        show_table("Each client", list(columns), list(zip(*columns.values(), strict=True)))
    for remark in view.summary.get("warnings", ()):
        stderr().print(f"Warning: {remark}", soft_wrap=True)
    stdout().print(f"Report: {folder / REPORT}", soft_wrap=True)
