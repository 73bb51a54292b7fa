"""The pieces of which a page is made. Whatever comes from a run is escaped here and nowhere else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from shoal.report.canvas import COLOURS, GRID, INK, MUTED, SMALL, WIDTH, svg
from shoal.report.shades import colours

# A page gives these colours names, so that its dark theme can have others.
_NAMED = {INK: "--ink", MUTED: "--muted", GRID: "--grid"} | {c: f"--line-{i}" for i, c in enumerate(COLOURS)}


class Tile(NamedTuple):
    """A number worth a place at the top of a page."""

    name: str
    value: str
    more: str = ""


class Cell(NamedTuple):
    """A cell of a table; `kind` is a class of the style sheet, `slot` gives a dot its colour.

    `more` stands below the text, smaller.
    """

    text: str
    kind: str = ""
    slot: int | None = None
    more: str = ""
    depth: float | None = None  # of its colour in a heat map, from 0 to 1


def document(title: str, kind: str, facts: Mapping[str, str], badge: str, body: Sequence[str]) -> str:
    """The whole page. `badge` and `body` are HTML, the rest is text."""
    style = files("shoal.report").joinpath("page.css").read_text(encoding="utf-8")
    told = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items() if v)
    parts = "\n".join(part for part in body if part)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<p class="kind">{escape(kind)} {badge}</p>
<h1>{escape(title)}</h1>
<dl class="facts">{told}</dl>
</header>
<main>
{parts}
</main>
<footer>Made by Shoal from the run directories alone; this file needs nothing besides itself.</footer>
</body>
</html>
"""


def badge(text: str, kind: str) -> str:
    """A short remark on the state of things, `good` or `warn`."""
    return f'<span class="badge {kind}">{escape(text)}</span>'


def heading(text: str) -> str:
    """The title of a section."""
    return f"<h2>{escape(text)}</h2>"


def note(text: str) -> str:
    """A remark under a title."""
    return f'<p class="note">{escape(text)}</p>'


def tiles(entries: Sequence[Tile]) -> str:
    """A row of numbers. The unit, after the last space of a value, is set smaller."""
    shown = []
    for entry in entries:
        value = re.sub(r"(?<=\d) ([^\d ]+)", r" <small>\1</small>", escape(entry.value))
        more = f'<div class="more">{escape(entry.more)}</div>'
        shown.append(
            f'<div class="tile"><div class="name">{escape(entry.name)}</div>'
            f'<div class="value">{value}</div>{more}</div>'
        )
    return f'<section class="tiles">{"".join(shown)}</section>'


def chart(figure: Figure | None, title: str, remark: str = "") -> str:
    """A card with a figure; empty where there is no figure."""
    if figure is None:
        return ""
    picture = svg(figure, title)
    picture = picture[picture.index("<svg") :].strip()
    # Ids that nothing links to are the same in every figure, and on a page an id must be unique.
    linked = set(re.findall(r"#([\w.-]+)", picture))
    picture = re.sub(r'(<\w+[^<>]*?) id="([^"]*)"', lambda m: m[0] if m[2] in linked else m[1], picture)
    picture = picture.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
    for colour, name in _NAMED.items():
        picture = picture.replace(f": {colour}", f": var({name}, {colour})")
    below = f"<p>{escape(remark)}</p>" if remark else ""
    caption = f"<figcaption><strong>{escape(title)}</strong>{below}</figcaption>"
    return f'<figure class="card">{caption}{picture}</figure>'


class Sketch(NamedTuple):
    """A chart to be drawn at the width for which there is room."""

    draw: Callable[[float], Figure | None]
    title: str
    remark: str = ""


def gallery(sketches: Sequence[Sketch], *, roomy: bool = False) -> str:
    """Charts beside one another, in rows of two, or of three where two would leave a gap.

    Those that have nothing to show are left out; `roomy` asks for two a row in any case.
    """
    known = [(sketch, figure) for sketch in sketches if (figure := sketch.draw(WIDTH))]
    small = len(known) % 2 == 1 and len(known) > 1 and not roomy
    cards = [chart(s.draw(SMALL) if small else figure, s.title, s.remark) for s, figure in known]
    return f'<div class="charts{" small" if small else ""}">{"".join(cards)}</div>' if cards else ""


def table(head: Sequence[Cell], rows: Sequence[Sequence[Cell]]) -> str:
    """A card with a table."""
    top = "".join(f'<th class="{cell.kind}">{escape(cell.text)}</th>' for cell in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="card"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def folded(title: str, text: str) -> str:
    """A block of text behind a title, to be opened by a click."""
    return f'<details class="card"><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>'


def toml(flat: Mapping[str, Any]) -> str:
    """Settings with dotted keys as TOML, those without a table first."""
    tables: dict[str, list[str]] = {"": []}
    for key, value in flat.items():
        table_name, _, name = key.partition(".") if "." in key else ("", "", key)
        shown = json.dumps(value, default=str, ensure_ascii=False)
        tables.setdefault(table_name, []).append(f"{name} = {shown}")
    blocks = ["\n".join([f"[{name}]", *lines] if name else lines) for name, lines in tables.items() if lines]
    return "\n\n".join(blocks)


def _cell(cell: Cell) -> str:
    dot = ""
    if cell.slot is not None:
        dot = f'<span class="swatch" style="background: var(--line-{cell.slot % len(COLOURS)})"></span>'
    more = f'<div class="more">{escape(cell.more)}</div>' if cell.more else ""
    style = ""
    if cell.depth is not None:
        style = ' style="background: {}; color: {}"'.format(*colours(cell.depth))
    return f'<td class="{cell.kind}"{style}>{dot}{escape(cell.text)}{more}</td>'
