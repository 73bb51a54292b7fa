"""The parts of a page as values, and the templates that turn them into HTML.

All HTML is in templates/. Jinja2 escapes every text that comes from a run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from shoal.report.canvas import COLOURS, GRID, INK, MUTED, SMALL, WIDTH, svg
from shoal.report.heatmap_cells import colours

# The style sheet names these colours, so that the dark theme can replace them.
_NAMED = {INK: "--ink", MUTED: "--muted", GRID: "--grid"} | {c: f"--line-{i}" for i, c in enumerate(COLOURS)}


class Badge(NamedTuple):
    """A short text next to the kind of the page, such as `finished`."""

    text: str
    kind: Literal["good", "warn"]


class Tile(NamedTuple):
    """A number at the top of a page, with the text `more` below it."""

    name: str
    value: str
    more: str = ""


class TableCell(NamedTuple):
    """A cell of a table on a page."""

    text: str
    kind: str = ""  # classes of the style sheet
    slot: int | None = None  # marks the cell with the colour of the line with this number
    more: str = ""  # smaller, below the text
    depth: float | None = None  # of its colour in a heat map, from 0 to 1


class PageTable(NamedTuple):
    """A table on a page."""

    head: Sequence[TableCell]
    rows: Sequence[Sequence[TableCell]]


class Card(NamedTuple):
    """A chart with its title and a remark."""

    title: str
    remark: str
    picture: Markup  # SVG


class Gallery(NamedTuple):
    """Charts side by side: two in a row, or three small ones."""

    cards: Sequence[Card]
    small: bool


class Sketch(NamedTuple):
    """A chart that is drawn later, once the page has set its width."""

    draw: Callable[[float], Figure | None]  # None if there is nothing to show
    title: str
    remark: str = ""


def gallery(sketches: Sequence[Sketch], *, roomy: bool = False) -> Gallery | None:
    """Draw the charts that have something to show; None if there are none.

    An odd number of charts would leave a gap in rows of two, so they go in rows of three, unless `roomy`.
    """
    drawn = [(sketch, figure) for sketch in sketches if (figure := sketch.draw(WIDTH))]
    if not drawn:
        return None
    small = len(drawn) % 2 == 1 and len(drawn) > 1 and not roomy
    if small:
        drawn = [(sketch, figure) for sketch, _ in drawn if (figure := sketch.draw(SMALL))]
    return Gallery([card(figure, sketch.title, sketch.remark) for sketch, figure in drawn], small)


def card(figure: Figure, title: str, remark: str = "") -> Card:
    """A figure as SVG in the page's colours, with ids that do not clash with other figures."""
    picture = svg(figure, title)
    picture = picture[picture.index("<svg") :].strip()
    # Ids must be unique on a page. Ids that nothing refers to are the same in every figure: remove them.
    linked = set(re.findall(r"#([\w.-]+)", picture))
    picture = re.sub(r'(<\w+[^<>]*?) id="([^"]*)"', lambda m: m[0] if m[2] in linked else m[1], picture)
    picture = picture.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
    for colour, name in _NAMED.items():
        picture = picture.replace(f": {colour}", f": var({name}, {colour})")
    return Card(title, remark, Markup(picture))


def toml(flat: Mapping[str, Any]) -> str:
    """Settings with dotted keys as TOML; keys outside any table come first."""
    tables: dict[str, list[str]] = {"": []}
    for key, value in flat.items():
        table_name, _, name = key.partition(".") if "." in key else ("", "", key)
        tables.setdefault(table_name, []).append(f"{name} = {_inline(value)}")
    blocks = ["\n".join([f"[{name}]", *lines] if name else lines) for name, lines in tables.items() if lines]
    return "\n\n".join(blocks)


def _inline(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name} = {_inline(item)}' for name, item in value.items())}}}"
    return json.dumps(value, default=str, ensure_ascii=False)


def document(
    template: str, title: str, kind: str, facts: Mapping[str, str], badge: Badge | None, **parts: Any
) -> str:
    """Render a whole page: a template that extends page.html, filled with its parts."""
    title = title.replace(" %", "\N{NO-BREAK SPACE}%")
    return _TEMPLATES.get_template(template).render(title=title, kind=kind, facts=facts, badge=badge, **parts)


def _small_units(value: str) -> Markup:
    """Markup for a value such as `4 min 05 s`, with the units in smaller type."""
    return Markup(re.sub(r"(?<=\d) ([^\d ]+)", r" <small>\1</small>", str(escape(value))))


_TEMPLATES = Environment(
    loader=PackageLoader("shoal.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {"small_units": _small_units, "heat_colours": colours}
_TEMPLATES.globals["line_colours"] = len(COLOURS)
