"""The results of each client as columns of strings, for pages and terminals; no drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.report.runs import RunView, number
from shoal.report.table import NOTHING

FEW_LABELS = 6  # classes whose counts fit into a table

Columns = dict[str, list[str]]  # title -> one string per client


def client_columns(run: RunView) -> Columns:
    """The known results of each client, without empty columns; empty if nothing is known."""
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
