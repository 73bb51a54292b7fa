"""Heat maps as tables of coloured cells, for pages and for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

_STOPS = ((240, 249, 215), (127, 205, 187), (29, 145, 192), (8, 29, 88))  # from pale to deep


class HeatMapCell(NamedTuple):
    """A cell: its text, and the depth of its colour from 0 to 1 (None for no colour)."""

    text: str
    depth: float | None = None


class HeatMap(NamedTuple):
    """A heat map: one row of cells per name."""

    title: str
    remark: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[HeatMapCell]]


def colours(depth: float) -> tuple[str, str]:
    """The background colour of a cell, and a readable text colour for it."""
    place = min(max(depth, 0.0), 1.0) * (len(_STOPS) - 1)
    begin = min(int(place), len(_STOPS) - 2)
    mixed = (
        round(a + (place - begin) * (b - a)) for a, b in zip(_STOPS[begin], _STOPS[begin + 1], strict=True)
    )
    return "#" + "".join(f"{part:02x}" for part in mixed), "#ffffff" if depth > 0.6 else "#1b1f24"
