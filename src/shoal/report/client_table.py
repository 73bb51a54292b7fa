"""The results of each client: a table, and their curves if they are few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.report.page_parts import PageTable, TableCell
from shoal.report.runs import RunView, number
from shoal.report.series import Curve
from shoal.report.table import NOTHING

FEW_LABELS = 6  # classes whose counts fit into a table
MOST_TRACKS = 10  # clients whose lines can be told apart in one chart

Columns = dict[str, list[str]]  # title -> a text for each client


def client_columns(run: RunView) -> Columns:
    """What is known of each client, with the columns that say something; empty if nothing is."""
    rows: Sequence[Mapping[str, Any]] = run.summary.get("clients") or ()
    if not rows:
        return {}
    classes = run.summary.get("class_names") or range(len(rows[0].get("labels", ())))
    columns: Columns = {
        "Client": [client_name(row) for row in rows],
        "Samples": [f"{row['samples']:,}" for row in rows],
    }
    if len(classes) <= FEW_LABELS:
        for place, name in enumerate(classes):
            columns[f"{name}"] = [f"{row['labels'][place]:,}" for row in rows]
    columns["Rounds"] = [f"{row['rounds']:,}" for row in rows]
    columns["Accuracy %"] = [_shown(row.get("accuracy"), 100, 2) for row in rows]
    columns["MSE"] = [_shown(row.get("mse"), 1, 4) for row in rows]
    columns["Weight %"] = [_shown(row.get("weight"), 100, 1) for row in rows]
    columns["Refused"] = [f"{row['refused']:,}" if row["refused"] else NOTHING for row in rows]
    return {title: texts for title, texts in columns.items() if set(texts) != {NOTHING}}


def client_name(row: Mapping[str, Any]) -> str:
    """The name of a client, or its number."""
    return str(row.get("name", row["client"]))


def _shown(value: object, factor: float, decimals: int) -> str:
    found = number(value)
    return NOTHING if found is None else f"{factor * found:.{decimals}f}"


def client_table(run: RunView) -> PageTable | None:
    """The table of a page."""
    columns = client_columns(run)
    if not columns:
        return None
    head = [TableCell(title, "text" if title == "Client" else "") for title in columns]
    rows = [
        [TableCell(text, "text" if title == "Client" else "") for title, text in zip(columns, texts)]
        for texts in zip(*columns.values(), strict=True)
    ]
    return PageTable(head, rows)


def client_tracks(run: RunView) -> list[Curve]:
    """The accuracy of each client over rounds, where records have it: of few clients."""
    names = {str(row["client"]): client_name(row) for row in run.summary.get("clients") or ()}
    tracks: dict[str, list[tuple[float, float]]] = {}
    for record in run.rounds:
        for client, value in (record.get("own_accuracy") or {}).items():
            if (found := number(value)) is not None:
                tracks.setdefault(client, []).append((float(record["round"]), found))
    if not 1 < len(tracks) <= MOST_TRACKS or all(len(track) < 2 for track in tracks.values()):
        return []
    curves = []
    for slot, (client, track) in enumerate(sorted(tracks.items(), key=lambda entry: int(entry[0]))):
        x, y = np.array(track).T
        curves.append(Curve(names.get(client, client), slot, x, y, np.zeros_like(y)))
    return curves
