"""The command demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.options import PictureOption, check_picture, gc_paused_for_imports, interruptible, save_picture
from shoal.core.errors import SpecError


def demo(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder to write to, or to continue in.")
    ] = Path("runs/demo"),
    picture: PictureOption = None,
    rounds: Annotated[int, typer.Option(help="Fewer rounds, for a first look; 0: the full number.")] = 0,
) -> None:
    """Compare five methods with FedAvg, each on the heterogeneity it was made for, in about two minutes."""
    with gc_paused_for_imports():
        from shoal.report.demo_page import NAMES
        from shoal.report.table import comparison_rows, stat_text
        from shoal.runs.directory import REPORT
        from shoal.study import demo as study
        from shoal.terminal import show_table, stdout

    check_picture(picture)
    if rounds < 0:
        raise SpecError(f"--rounds must be at least 0, got {rounds}; 0 are as many as it takes")
    with interruptible(lambda: "the same command continues where it stopped"):
        scenes = study.run_demo(out, rounds)
    rows = []
    for scene in scenes:
        for row in comparison_rows(scene.runs):
            cells = [stat_text(name, row.stat(name)) for name in (scene.judged_by, "bytes_up")]
            rows.append([scene.unlike, NAMES[row.label], *cells])
    show_table("Five ways in which clients differ", ["Unlike in", "Method", "Accuracy %", "Sent up"], rows)
    if picture is not None:
        save_picture(study.picture(scenes), picture)
        stdout().print(f"Picture: {picture}", soft_wrap=True)
    stdout().print(f"Page: {out / REPORT}", soft_wrap=True)
