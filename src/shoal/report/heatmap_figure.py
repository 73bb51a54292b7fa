"""A matrix of numbers as a heat map."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure

from shoal.report.canvas import HEAT, INK, STYLE, canvas, short

_CELL, _SIDE = (0.62, 0.34), (2.4, 1.1)  # inches (width, height): of a cell, and of labels and margins


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
    """`values` [rows, columns] as coloured cells with their numbers; what is not finite stays blank.

    `titles` are those of the two axes (rows, columns), `label` says what the numbers are. `root` colours on a
    square-root scale, on which small numbers differ more.
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
