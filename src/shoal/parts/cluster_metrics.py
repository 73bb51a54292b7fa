"""The metrics of several clusters, merged into those of one round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.core.types import Metrics


def merged(metrics: Sequence[Metrics]) -> dict[str, Any]:
    """Numbers are averaged, lists are concatenated, and tables are merged, adding overlapping entries."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in metrics for name in one):
        values = [one[name] for one in metrics if name in one]
        if all(isinstance(value, Mapping) for value in values):
            table: dict[Any, Any] = {}
            for value in values:
                for key, entry in value.items():
                    table[key] = table[key] + entry if key in table else entry
            found[name] = table
        elif all(isinstance(value, int | float) for value in values):
            found[name] = sum(values) / len(values)
        elif all(isinstance(value, list) for value in values):
            found[name] = [entry for value in values for entry in value]
        else:
            found[name] = values if len(values) > 1 else values[0]
    return found
