"""The command bench."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.cli.options import JsonFlag, PictureOption, check_picture, gc_paused_for_imports, save_picture
from shoal.core.errors import SpecError

TABLES = ("methods", "modes", "codecs", "aggregators", "checkpoints")  # not workloads


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Workloads; by default, all of them. Or one of: methods (every method against FedAvg), "
            "modes (every model in every mode of the local engine), codecs (against a memory copy), "
            "aggregators (server seconds by rule, model and number of clients), "
            "checkpoints (against the rounds of every workload).",
        ),
    ] = None,
    pairs: Annotated[int, typer.Option(help="Number of timed turns per contestant.")] = 7,
    picture: PictureOption = None,
    json: JsonFlag = False,
) -> None:
    """Measure throughput against a plain PyTorch loop, and against other frameworks if installed."""
    tables = [name for name in names or [] if name in TABLES]
    if tables and (len(names or []) > 1 or picture is not None):
        raise SpecError(f"`shoal bench {tables[0]}` takes no other names and no --picture; leave them out")
    check_picture(picture)
    with gc_paused_for_imports():
        from shoal.runs.json_text import to_json

    rows, whole = _table(tables[0]) if tables else (_workloads(names or [], pairs, picture), True)
    if json:
        print(to_json(rows))
    else:
        _show(tables[0] if tables else "workloads", rows)
    if not whole:
        raise KeyboardInterrupt


def _show(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    from shoal.terminal import show_table

    columns = COLUMNS[name]
    head = [title for title, _ in columns.values()]
    shown = [[_told(row.get(field), form) for field, (_, form) in columns.items()] for row in rows]
    show_table(TITLES[name], head, shown)


TITLES = {
    "workloads": "Medians; ratios from paired turns",
    "methods": "Medians; ratios from paired turns",
    "modes": "Medians; ratios from paired turns; milliseconds per round",
    "codecs": "Medians for ten million numbers on one core; GB of float32 per second",
    "aggregators": "Medians; milliseconds per server step, by number of clients",
    "checkpoints": "Medians; shares of the rounds' time",
}


COLUMNS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "workloads": {
        "workload": ("Workload", ""),
        "peer": ("Contestant", ""),
        "client_samples_per_second": ("Samples/s", ",.0f"),
        "seconds_per_round": ("s/round", ".4f"),
        "peak_rss_mb": ("Peak MB", ",.0f"),
        "ratio_to_plain": ("x plain", ".2f"),
    },
    "methods": {
        "model": ("Model", ""),
        "method": ("Method", ""),
        "mode": ("Mode", ""),
        "seconds_per_round": ("s/round", ".4f"),
        "ratio_to_fedavg": ("x fedavg", ".2f"),
    },
    "modes": {
        "model": ("Model", ""),
        "method": ("Method", ""),
        "chosen": ("Chosen", ""),
        "auto": ("auto", "ms"),
        "serial": ("serial", "ms"),
        "block": ("block", "ms"),
        "workers": ("workers", "ms"),
        "plain": ("plain", "ms"),
        "behind_best": ("Gap", "+.0%"),
    },
    "codecs": {
        "codec": ("Codec", ""),
        "bits_per_number": ("Bits", ".3g"),
        "encode_gb_per_second": ("Encode", ".2f"),
        "decode_gb_per_second": ("Decode", ".2f"),
        "copy_gb_per_second": ("Copy", ".2f"),
    },
    "checkpoints": {
        "workload": ("Workload", ""),
        "seconds_per_round": ("s/round", ".4f"),
        "seconds_per_checkpoint": ("s/checkpoint", ".4f"),
        "share_every_round": ("Every round", ".1%"),
        "share": ("By default", ".1%"),
        "share_of_record": ("Record", ".1%"),
    },
    "aggregators": {
        "model": ("Model", ""),
        "parameters": ("Parameters", ",d"),
        "aggregator": ("Rule", ""),
        **{f"seconds_{count}": (str(count), "ms") for count in (10, 20, 50, 100)},
    },
}


def _told(value: Any, form: str) -> str:
    if value is None:
        return "-"
    return f"{1e3 * value:.0f}" if form == "ms" else format(value, form)


def _table(name: str) -> tuple[list[dict[str, Any]], bool]:
    """The rows of a table, and whether it is complete: after Ctrl-C, it holds what was measured so far."""
    from shoal.bench import aggregators, checkpoints, codecs, methods, modes
    from shoal.terminal import stderr

    rows: list[dict[str, Any]] = []
    tables: dict[str, Callable[..., Iterator[dict[str, Any]]]] = {
        "methods": methods.measure,
        "modes": modes.measure,
        "codecs": codecs.measure,
        "aggregators": aggregators.measure,
        "checkpoints": checkpoints.measure,
    }
    with stderr().status("") as status:
        try:
            for row in tables[name](watcher=lambda model, method: status.update(f"{model}: {method}")):
                rows.append(row)
        except KeyboardInterrupt:
            return rows, False
    return rows, True


def _workloads(names: Sequence[str], pairs: int, picture: Path | None) -> list[dict[str, Any]]:
    from shoal.bench import measure
    from shoal.bench.workloads import WORKLOADS
    from shoal.terminal import stderr

    with stderr().status("") as status:
        rows = measure.measure(
            names or list(WORKLOADS), pairs, watcher=lambda w, c, t: status.update(f"{w}: {c}, turn {t}")
        )
    if picture is not None:
        save_picture(measure.chart(rows), picture)
    return rows
