"""The command bench."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.options import JsonFlag
from shoal.cli.pictures import PICTURES
from shoal.core.errors import SpecError
from shoal.runs.directory import to_json
from shoal.terminal import show_table, stderr


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
