"""Commands that show what is there: partition, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.options import JsonFlag, SetOption, SpecFile
from shoal.core.errors import SpecError
from shoal.data import label_matrix
from shoal.overrides import with_settings
from shoal.picture import MOST_DRAWN, PICTURES, draw_partition
from shoal.report.runs import read_runs
from shoal.runs.build import deal
from shoal.runs.directory import to_json
from shoal.spec import from_table, load_table
from shoal.terminal import stdout


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
    chosen = from_table(with_settings({} if spec is None else load_table(spec), settings or []))
    dataset, shards = deal(chosen)
    counts = label_matrix(dataset, shards, range(len(shards) if json else min(len(shards), MOST_DRAWN)))
    if out is not None:
        draw_partition(counts[:MOST_DRAWN], len(shards), chosen, out)
    if json:
        print(to_json({"clients": len(shards), "classes": dataset.classes, "counts": counts.tolist()}))
    else:
        stdout().print(f"Picture: {out}")


def report(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories.")],
    out: Annotated[Path, typer.Option("--out", metavar="REPORT.html", help="The page to write.")],
) -> None:
    """Write a page on one run, or one that sets several side by side."""
    from shoal.report.page import write_report  # matplotlib is slow to import

    views = read_runs(directories)
    write_report(views, out, title=" against ".join(dict.fromkeys(view.label for view in views)))
    stdout().print(f"Report: {out}")
