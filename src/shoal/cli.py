"""The command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal import compare as comparison
from shoal.build import deal
from shoal.config import MISSING, Catalogue, Table, arguments, write
from shoal.core.attack import Attack
from shoal.core.codec import Codec
from shoal.core.errors import SpecError
from shoal.core.selector import Selector
from shoal.data import label_matrix
from shoal.directory import REPORT, RunDirectory, to_json
from shoal.picture import MOST_DRAWN, PICTURES, draw_partition
from shoal.report.runs import read_run, read_runs
from shoal.report.table import Stat, comparison_rows, shown_columns, stat_text
from shoal.runner import resume as resume_run
from shoal.runner import run as run_spec
from shoal.spec import (
    CATALOGUES,
    DATASET,
    METHOD,
    MODEL,
    from_table,
    load_table,
    summary_line,
    with_method,
    with_settings,
)
from shoal.terminal import bars, complain, show_table, stderr, stdout

SHORT_TITLES = {  # of the columns that fit into a terminal
    "final_accuracy": "Accuracy %",
    "final_mse": "MSE",
    "max_accuracy": "Max %",
    "mean_client_accuracy": "Clients %",
    "worst_client_accuracy": "Worst %",
    "bytes_up": "Up",
    "seconds": "Time",
}


def _version(asked: bool) -> None:
    if asked:
        print(f"shoal {version('shoal')}")
        raise typer.Exit


app = typer.Typer(
    help="Federated learning between clients that are nothing alike.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SpecFile = Annotated[
    Path | None, typer.Argument(metavar="[SPEC.toml]", help="The spec; without it, defaults.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH.TO.FIELD=VALUE", help="Change a field of the spec.")
]
JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")
]
OutFolder = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Where to write; it must be new.")
]


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    """Federated learning between clients that are nothing alike."""


def main() -> None:
    """The console script: bad input ends with 2 and a line on stderr, not with a traceback."""
    sys.path.insert(0, os.getcwd())  # so that a spec can name functions of the user's own modules
    try:
        app()
    except SpecError as error:
        complain(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        complain("stopped")
        sys.exit(130)


def _table(
    file: Path | None, method: str | None, settings: list[str] | None, engine: str | None = None
) -> Table:
    table: Table = {} if file is None else load_table(file)
    if method is not None:
        table = with_method(table, method)
    return with_settings(table, [*(settings or []), *([f"engine.name={engine}"] if engine else [])])


def _free_folder(name: str) -> Path:
    """runs/001-name, runs/002-name, ...: the first number that no folder has."""
    taken = {path.name.split("-")[0] for path in Path("runs").glob("*")}
    number = next(n for n in range(1, 10**6) if f"{n:03d}" not in taken)
    return Path("runs") / f"{number:03d}-{name.replace(':', '.')}"


@app.command()
def run(
    spec: SpecFile = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another method than the spec's.")
    ] = None,
    settings: SetOption = None,
    out: OutFolder = None,
    engine: Annotated[str | None, typer.Option(metavar="NAME", help="Where clients run: local.")] = None,
    json: JsonFlag = False,
) -> None:
    """Run a federation and write its record, model and report."""
    chosen = from_table(_table(spec, method, settings, engine))
    folder = out or _free_folder(f"{chosen.method_name}-{chosen.task.dataset}")
    with _interruptible(f"go on with: shoal resume {folder}"), bars() as shown:
        run_spec(chosen, folder, shown.add(chosen.method_name, chosen.rounds))
    _show_run(folder, json)


@app.command()
def resume(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of an interrupted run.")],
    json: JsonFlag = False,
) -> None:
    """Go on with a run after a crash, to the same bits."""
    folder, chosen = RunDirectory.open(directory)
    if folder.finished:
        stderr().print(f"{directory} is finished: nothing to do")
    else:
        with _interruptible(f"go on with: shoal resume {directory}"), bars() as shown:
            resume_run(directory, shown.add(chosen.method_name, chosen.rounds))
    _show_run(directory, json)


@app.command()
def compare(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Methods, also with fields: fedprox:mu=0.1")
    ],
    spec: Annotated[Path | None, typer.Option(metavar="SPEC.toml", help="What they have in common.")] = None,
    seeds: Annotated[str, typer.Option(help="One run of each method for each seed.")] = "0,1,2",
    settings: SetOption = None,
    out: OutFolder = None,
    json: JsonFlag = False,
) -> None:
    """Run several methods under one spec and set them side by side, as mean and spread over seeds.

    With an --out that holds part of the same comparison, only what is missing is run.
    """
    folder = out or _free_folder("compare")
    table = {} if spec is None else load_table(spec)
    cells = comparison.plan(names, table, settings or [], _numbers(seeds), folder)
    with _interruptible("the same command goes on where it was"), bars() as shown:
        watchers = {
            cell.directory: shown.add(f"{cell.label}, seed {cell.spec.seed}", cell.spec.rounds)
            for cell in cells
        }
        comparison.play(cells, lambda cell: watchers[cell.directory])
    title = f"{' against '.join(names)} on {cells[0].spec.task.dataset}"
    page = comparison.report(cells, folder, title)
    rows = comparison_rows([read_run(cell.directory, cell.label) for cell in cells])
    columns = shown_columns(rows)
    if json:
        found = {row.label: {metric: _spread(row.stat(metric)) for metric in columns} for row in rows}
        print(to_json({"out": str(folder), "report": str(page), "seeds": _numbers(seeds), "methods": found}))
        return
    head = {metric: title for metric, title in SHORT_TITLES.items() if metric in columns}
    shown_rows = [[row.label, *(stat_text(metric, row.stat(metric)) for metric in head)] for row in rows]
    show_table(title, ["Method", *head.values()], shown_rows)
    stdout().print(f"Report: {page}", soft_wrap=True)


@app.command()
def partition(
    spec: SpecFile = None,
    settings: SetOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="PICTURE.png", help="Where to draw it.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Draw who holds what: a heat map of clients by classes."""
    if out is None and not json:
        raise SpecError("say where to draw the picture with --out picture.png, or ask for --json")
    if out is not None and out.suffix.lower() not in PICTURES:
        raise SpecError(f"--out {out} must end in one of {', '.join(PICTURES)}")
    chosen = from_table(_table(spec, None, settings))
    dataset, shards = deal(chosen)
    counts = label_matrix(dataset, shards, range(len(shards) if json else min(len(shards), MOST_DRAWN)))
    if out is not None:
        draw_partition(counts[:MOST_DRAWN], len(shards), chosen, out)
    if json:
        print(to_json({"clients": len(shards), "classes": dataset.classes, "counts": counts.tolist()}))
    else:
        stdout().print(f"Picture: {out}")


@app.command()
def report(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories.")],
    out: Annotated[Path, typer.Option("--out", metavar="REPORT.html", help="The page to write.")],
) -> None:
    """Write a page on one run, or one that sets several side by side."""
    from shoal.report.page import write_report  # matplotlib is slow to import

    views = read_runs(directories)
    write_report(views, out, title=" against ".join(dict.fromkeys(view.label for view in views)))
    stdout().print(f"Report: {out}")


@app.command()
def bench(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help="Workloads; without any, all of them.")
    ] = None,
    pairs: Annotated[int, typer.Option(help="How often each contestant has its turn.")] = 7,
    chart: Annotated[Path | None, typer.Option(metavar="PICTURE.png", help="Draw the ratios.")] = None,
    json: JsonFlag = False,
) -> None:
    """Measure throughput beside a plain PyTorch loop, and beside peers where they are installed."""
    from shoal.bench import measure as bench  # only needed here
    from shoal.bench.workloads import WORKLOADS

    if chart is not None and chart.suffix.lower() not in PICTURES:
        raise SpecError(f"--chart {chart} must end in one of {', '.join(PICTURES)}")
    with stderr().status("") as status:
        rows = bench.measure(
            names or list(WORKLOADS), pairs, watcher=lambda w, c, t: status.update(f"{w}: {c}, turn {t}")
        )
    if chart is not None:
        bench.chart(rows).savefig(chart)
    if json:
        print(to_json(rows))
        return
    head = ["Workload", "Contestant", "Samples/s", "s/round", "Peak MB", "x plain"]
    formats = {
        "client_samples_per_second": ",.0f",
        "seconds_per_round": ".4f",
        "peak_rss_mb": ",.0f",
        "ratio_to_plain": ".2f",
    }
    shown = [[row["workload"], row["peer"], *(format(row[k], f) for k, f in formats.items())] for row in rows]
    show_table("Medians; ratios of turns taken side by side", head, shown)


def _lister(catalogue: Catalogue) -> Any:
    def show(json: JsonFlag = False) -> None:
        entries = catalogue.entries.items()
        if json:
            print(to_json({name: {"summary": summary_line(e), "fields": _fields(e)} for name, e in entries}))
            return
        rows = [[name, summary_line(e), _told(_fields(e))] for name, e in entries]
        show_table(None, [catalogue.kind.capitalize(), "What it is", "Fields and defaults"], rows)

    return show


def _fields(entry: Callable[..., Any]) -> dict[str, Any]:
    """What a table may set, with the defaults; the solver has a table of its own."""
    return {
        name: None if argument.default is MISSING else write(argument.default, CATALOGUES)
        for name, argument in arguments(entry).items()
        if name != "local"
    }


def _told(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {to_json(value)}" for name, value in fields.items())


for command, listed in {
    "methods": METHOD,
    "datasets": DATASET,
    "models": MODEL,
    "selectors": CATALOGUES[Selector],
    "codecs": CATALOGUES[Codec],
    "attacks": CATALOGUES[Attack],
}.items():
    app.command(command, help=f"List the {command}.")(_lister(listed))


def _numbers(seeds: str) -> list[int]:
    try:
        return [int(seed) for seed in seeds.split(",")]
    except ValueError:
        raise SpecError(f"--seeds must be whole numbers such as 0,1,2; got {seeds!r}") from None


def _spread(stat: Stat | None) -> dict[str, float] | None:
    return None if stat is None else stat._asdict()


@contextmanager
def _interruptible(cure: str) -> Iterator[None]:
    """Ctrl-C ends a run without losing it, and says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        complain(f"stopped; {cure}")
        sys.exit(130)


def _show_run(folder: Path, json: bool) -> None:
    view = read_run(folder)
    if json:
        print(to_json({"out": str(folder), "report": str(folder / REPORT), **view.summary}))
        return
    (row,) = comparison_rows([view])
    rows = [[column.title, stat_text(m, row.stat(m))] for m, column in shown_columns([row]).items()]
    rounds = view.summary["rounds"]
    show_table(f"{view.label}, {rounds} round{'s' if rounds > 1 else ''}", [], rows)
    if view.summary["rejected"]:
        first = next(r["rejected"][0]["reason"] for r in view.rounds if r["rejected"])
        refused = f"{view.summary['rejected']} replies were refused, the first because {first}"
        stderr().print(f"Warning: {refused}; rounds.jsonl names the clients")
    stdout().print(f"Report: {folder / REPORT}", soft_wrap=True)
