"""The command arena."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli.options import (
    JsonFlag,
    PictureOption,
    SetOption,
    check_picture,
    free_folder,
    gc_paused_for_imports,
    interruptible,
    numbers,
    own_modules,
    save_picture,
)

if TYPE_CHECKING:
    from shoal.report.heatmap_cells import HeatMap
    from shoal.study.arena import Match

RESULT = "arena.json"


def _all_defences() -> str:
    from shoal.study.arena import DEFENCES

    return ",".join(DEFENCES)


def _all_attacks() -> str:
    from shoal.attacks import ATTACKS

    return ",".join(ATTACKS)


def arena(
    defences: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Methods, optionally with fields: krum:f=2.",
            default_factory=_all_defences,
            show_default="fedavg and all robust methods",
        ),
    ],
    attacks: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Attacks, optionally with fields: ipm:epsilon=100.",
            default_factory=_all_attacks,
            show_default="all",
        ),
    ],
    spec: Annotated[
        Path | None,
        typer.Option(metavar="SPEC.toml", help="Base spec of every run; default: mnist5k with 20 clients."),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Each pair is run once per seed.")] = "0",
    settings: SetOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder to write to, or to continue in.")
    ] = None,
    picture: PictureOption = None,
    json: JsonFlag = False,
) -> None:
    """Run every defence against every attack, and without an attack, on all cores.

    If --out holds part of the same arena already, only the missing runs are started.
    """
    with gc_paused_for_imports():
        from shoal.report.heatmap_figure import shaded_table
        from shoal.runs.directory import REPORT
        from shoal.runs.files import write_atomic
        from shoal.runs.json_text import to_json
        from shoal.spec import load_table
        from shoal.study import arena as study
        from shoal.terminal import show_heat, stdout

    own_modules()
    check_picture(picture)
    folder = out or free_folder("arena")
    table = study.QUICK if spec is None else load_table(spec)
    matches = study.plan(study.names(defences), study.names(attacks), table, settings or [], numbers(seeds))
    started = time.perf_counter()
    with interruptible(lambda: "the same command continues where it stopped"):
        answers = study.run_matches(matches, folder)
    seconds = time.perf_counter() - started
    cells = study.cells(matches, answers)
    share = max(answer["attackers_share"] for answer in answers.values())
    title = f"Arena on {matches[0].job.spec.task.dataset}, {100 * share:.0f} % attackers"
    heats = _write_page(folder, title, cells, matches)
    result = {"seeds": numbers(seeds), "attackers_share": share, "seconds": seconds, "cells": cells}
    write_atomic(folder / RESULT, (to_json(result, indent=2) + "\n").encode())
    if picture is not None:
        save_picture(shaded_table(heats[0]), picture)
    if json:
        print(to_json({"out": str(folder), "report": str(folder / REPORT), **result}))
        return
    stdout().print(title, style="bold")
    for heat in heats[:2]:  # the most important ones
        show_heat(heat, "Defence")
    stdout().print(f"Report: {folder / REPORT}", soft_wrap=True)
    if picture is not None:
        stdout().print(f"Picture: {picture}", soft_wrap=True)


def _write_page(
    folder: Path, title: str, cells: Sequence[Mapping[str, Any]], matches: Sequence[Match]
) -> list[HeatMap]:
    """Write the arena's page; returns the heat maps on it."""
    from shoal.report.arena import arena_page, heats
    from shoal.report.runs import flatten, varying
    from shoal.runs.directory import REPORT
    from shoal.runs.files import write_atomic
    from shoal.spec import to_table

    flat = [flatten(to_table(match.job.spec)) for match in matches]
    differing = set(varying(flat))
    common = {key: value for key, value in flat[0].items() if key not in differing}
    chosen = matches[0].job.spec
    partition = to_table(chosen)["partition"]
    kind = partition.pop("kind")
    dealt = ", ".join(f"{name} = {value}" for name, value in partition.items())
    facts = {
        "Data set": chosen.task.dataset,
        "Model": chosen.task.model,
        "Partition": f"{kind} ({dealt})" if dealt else kind,
        "Rounds": f"{chosen.rounds:,}",
        "Runs": f"{len(matches):,}",
    }
    write_atomic(folder / REPORT, arena_page(title, facts, cells, common).encode())
    return heats(cells)
