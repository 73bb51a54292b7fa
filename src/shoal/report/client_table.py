"""The results of each client: a table, and curves if there are few clients."""

from __future__ import annotations

import numpy as np

from shoal.report.client_columns import client_columns, client_name
from shoal.report.page_parts import PageTable, TableCell
from shoal.report.runs import RunView, number
from shoal.report.series import Curve

MOST_TRACKS = 10  # clients whose lines can be told apart in one chart


def client_table(run: RunView) -> PageTable | None:
    """The table of all clients for a page; None if the run has no client results."""
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
    """The accuracy of each client over rounds, if recorded, for at most `MOST_TRACKS` clients."""
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
