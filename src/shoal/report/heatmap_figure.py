"""Heat maps as figures: for a matrix of numbers, and for a table of shaded cells."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from shoal.report.canvas import HEAT, INK, MUTED, STYLE, canvas, short
from shoal.report.heatmap_cells import HeatMap, colours

_CELL, _SIDE = (0.62, 0.34), (2.4, 1.1)  # inches (width, height): a cell; labels and margins


def heat_map(
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    titles: tuple[str, str],
    label: str,
    decimals: int = 0,
    *,
    root: bool = False,
) -> Figure:
    """`values` [rows, columns] as coloured cells with their numbers; non-finite cells stay blank.

    `titles` belong to the two axes (rows, columns), `label` to the colour bar. `root` sets a square-root
    colour scale, on which small numbers differ more.
    """
    size = (_CELL[0] * len(columns) + _SIDE[0], _CELL[1] * len(rows) + _SIDE[1])
    shown = np.ma.masked_invalid(values)
    low, high = float(shown.min()), float(shown.max())
    norm = PowerNorm(0.5, low, high) if root else Normalize(low, high)
    with matplotlib.rc_context(STYLE):
        figure, axes = canvas(*size)
        image = axes.imshow(shown, aspect="auto", cmap=HEAT, norm=norm)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        axes.set_yticks(range(len(rows)), [short(row) for row in rows])
        axes.set_xticks(range(len(columns)), [short(column) for column in columns])
        axes.set_ylabel(titles[0])
        axes.set_xlabel(titles[1])
        bar = figure.colorbar(image, ax=axes, label=label, pad=0.02)
        bar.outline.set_visible(False)
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                ink = (
                    "white" if norm(value) > 0.55 else "#1b1f24"
                )  # the cell has the same colour in the dark theme
                text = f"{value:,.{decimals}f}"
                axes.text(column, row, text, ha="center", va="center", fontsize=8.5, color=ink)
        axes.tick_params(labelcolor=INK)
    return figure


def shaded_table(heat: HeatMap) -> Figure:
    """A heat map as shown on a page: cells with their texts, coloured by how good they are."""
    wide, tall = len(heat.columns), len(heat.rows)
    with matplotlib.rc_context(STYLE):
        figure, axes = canvas(_CELL[0] * 1.25 * wide + _SIDE[0] / 1.5, _CELL[1] * tall + _SIDE[1])
        axes.grid(visible=False)
        axes.set_title(heat.title, color=INK)
        for place, shades in enumerate(heat.rows.values()):
            for column, shade in enumerate(shades):
                ground, ink = ("white", MUTED) if shade.depth is None else colours(shade.depth)
                axes.add_patch(Rectangle((column, place), 1, 1, facecolor=ground, edgecolor="white"))
                axes.text(
                    column + 0.5, place + 0.5, shade.text, ha="center", va="center", color=ink, fontsize=9
                )
        axes.set_xlim(0, wide)
        axes.set_ylim(tall, 0)
        axes.set_xticks([column + 0.5 for column in range(wide)], [_broken(name) for name in heat.columns])
        axes.set_yticks([place + 0.5 for place in range(tall)], list(heat.rows))
        axes.xaxis.tick_top()
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(labelcolor=INK)
    return figure


def _broken(name: str) -> str:
    """A name on two lines, if it has two words or more."""
    first, _, rest = name.replace("_", " ").partition(" ")
    return f"{first}\n{rest}" if rest else first
