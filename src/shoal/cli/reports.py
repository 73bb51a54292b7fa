"""Commands that show partitions and finished runs: partition, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli.options import (
    PICTURES,
    JsonFlag,
    SetOption,
    SpecFile,
    check_picture,
    gc_paused_for_imports,
    own_modules,
    print_error,
    save_picture,
)
from shoal.core.errors import SpecError

if TYPE_CHECKING:
    from shoal.core.data import Dataset, Shards
    from shoal.spec import Spec

PAGES = (".html", ".htm")


def partition(
    spec: SpecFile = None,
    settings: SetOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PICTURE.png", help="Picture to write (png, svg, pdf)."),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Draw how many samples of each class each client holds (above 1,000 clients, for a sample of them)."""
    with gc_paused_for_imports():
        from shoal.data import label_matrix
        from shoal.overrides import with_settings
        from shoal.runs.build import load_and_partition
        from shoal.runs.json_text import to_json
        from shoal.spec import from_table, load_table
        from shoal.terminal import stdout

    own_modules()
    if out is None and not json:
        raise SpecError("say where to draw the picture with --out picture.png, or ask for --json")
    check_picture(out, "--out")
    chosen = from_table(with_settings({} if spec is None else load_table(spec), settings or []))
    dataset, shards = load_and_partition(chosen)
    if out is not None:
        _draw(chosen, dataset, shards, out)
    if json:
        counts = label_matrix(dataset, shards, range(len(shards)))
        print(to_json({"clients": len(shards), "classes": dataset.classes, "counts": counts.tolist()}))
    else:
        stdout().print(f"Picture: {out}")


def _draw(chosen: Spec, dataset: Dataset, shards: Shards, path: Path) -> None:
    from shoal.data import label_matrix
    from shoal.report.partition import partition_picture
    from shoal.report.run_description import partition_text
    from shoal.runs.evaluation import shown_clients
    from shoal.spec import to_table

    clients = shown_clients(chosen, len(shards))
    title = f"{chosen.task.dataset}, {partition_text(to_table(chosen)['partition'])}"
    picture = partition_picture(label_matrix(dataset, shards, clients), clients, len(shards), title)
    save_picture(picture, path, "--out")


def report(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Runs, or folders of runs such as comparisons.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Page (.html), table (.csv, .tex, .md) or picture (.png, .svg, .pdf).",
        ),
    ],
    chart: Annotated[
        str | None,
        typer.Option(metavar="TITLE", help="The chart of the page to draw.", show_default="the first"),
    ] = None,
) -> None:
    """Write an HTML report on one run, a comparison of several, or a table or picture for a paper."""
    with gc_paused_for_imports():
        from shoal.report.page import chart_of, write_report
        from shoal.report.paper_table import ENDINGS, paper_table
        from shoal.report.runs import read_runs, run_directories
        from shoal.runs.files import write_atomic
        from shoal.runs.verify import verify
        from shoal.terminal import stdout

    import matplotlib

    matplotlib.rcdefaults()  # ignore a `matplotlibrc` in the current folder
    ending = out.suffix.lower()
    if ending not in (*PAGES, *ENDINGS, *PICTURES):
        raise SpecError(f"--out {out} must end in one of {', '.join((*PAGES, *ENDINGS, *PICTURES))}")
    if chart is not None and ending not in PICTURES:
        raise SpecError(f"--chart draws a picture, but --out {out} ends in none of {', '.join(PICTURES)}")
    folders = run_directories(directories)
    views = read_runs(folders)
    for folder in folders:
        for flaw in verify(folder).flaws[:1]:
            print_error(f"warning: {flaw}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if ending in ENDINGS:
            write_atomic(out, paper_table(views, ENDINGS[ending]).encode())
            stdout().print(f"Table: {out}", soft_wrap=True)
        elif ending in PICTURES:
            save_picture(chart_of(views, chart), out, "--out")
            stdout().print(f"Picture: {out}", soft_wrap=True)
        else:
            write_report(views, out, title=" against ".join(dict.fromkeys(view.label for view in views)))
            stdout().print(f"Report: {out}", soft_wrap=True)
    except OSError as error:
        raise SpecError(f"{out} cannot be written: {error.strerror}; choose another --out") from None
