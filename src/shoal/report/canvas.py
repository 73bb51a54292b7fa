"""The style that all charts share, and the conversion of figures to SVG text."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine, LayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

WIDTH, HEIGHT = 6.2, 3.5  # inches, for a chart that fills half a page
SMALL = 4.1  # inches: the width of a chart that fills a third
_PAD = 0.05  # inches around a chart

# Each of these colours has one purpose, so that a page can replace it by name in a dark theme.
INK, MUTED, GRID = "#24292f", "#5c6570", "#e3e6ea"

# The palette of Okabe and Ito, whose colours can also be told apart with common kinds of colour blindness.
# Its yellow and black are left out: they are hard to see on a light and on a dark background, respectively.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a6f9b")
# After the last colour, the colours repeat with the next of these line styles.
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))

# The colours of heat maps. The palest tenth is left out: a small number must not look like an empty cell.
HEAT = ListedColormap(matplotlib.colormaps["YlGnBu"](np.linspace(0.1, 1, 256)))
BAR = "#7d9bb5"  # for bars: more muted than the heat maps and lines next to them
MOST_BARS = 100  # beyond, the gaps between bars would be thinner than a pixel
THOUSANDS = "{x:,.0f}"  # a whole number on an axis: 12,000

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: searchable, and set in the page's font
    "font.size": 10,
    "text.color": INK,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 10,
    "axes.labelpad": 6,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
}


class Chart(Figure):
    """A figure that notebooks show without pyplot."""

    def _repr_svg_(self) -> str:
        return svg(self, "chart")


class TightAxes(LayoutEngine):
    """A layout that gives a single axes all the room that its labels leave.

    Figures with several axes or an outside legend are laid out by matplotlib. For a single axes, matplotlib's
    layout gives the same picture, but takes half the time of a whole page.
    """

    _adjust_compatible = _colorbar_gridspec = False

    def execute(self, figure: Any) -> None:
        """Place the axes of a figure."""
        if len(figure.axes) != 1 or figure.legends:
            ConstrainedLayoutEngine().execute(figure)
            return
        for _ in range(2):  # resizing may change the ticks, and with them the room their labels need
            (axes,) = figure.axes
            before = _ticks(axes)
            _fit(figure, axes)
            if _ticks(axes) == before:
                break


def _ticks(axes: Axes) -> list[list[float]]:
    return [axis.get_majorticklocs().tolist() for axis in (axes.xaxis, axes.yaxis)]


def _fit(figure: Figure, axes: Axes) -> None:
    whole, inner, outer = figure.bbox, axes.bbox, axes.get_tightbbox(for_layout_only=True)
    if outer is None:
        return
    pad = _PAD * figure.dpi
    left, right = inner.x0 - outer.x0 + pad, whole.width - (outer.x1 - inner.x1) - pad
    low, high = inner.y0 - outer.y0 + pad, whole.height - (outer.y1 - inner.y1) - pad
    if left < right and low < high:
        wide, tall = whole.width, whole.height
        axes.set_position((left / wide, low / tall, (right - left) / wide, (high - low) / tall))
        axes.set_in_layout(True)


def line_style(slot: int) -> dict[str, Any]:
    """The colour and line style of the line with this number."""
    again, place = divmod(slot, len(COLOURS))
    return {"color": COLOURS[place], "linestyle": DASHES[again % len(DASHES)]}


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty chart in the common style; sizes in inches."""
    with matplotlib.rc_context(STYLE):
        figure = Chart(figsize=(width, height), layout=TightAxes())
        about = {
            "left": 0.7 / width,
            "bottom": 0.5 / height,
            "right": 1 - 0.1 / width,
            "top": 1 - 0.1 / height,
        }
        axes = figure.subplots(gridspec_kw=about)  # near the final position, so that ticks stay
    return figure, axes


def svg(figure: Figure, name: str) -> str:
    """A figure as SVG text, identical bytes every time. Text in it uses the font of the page.

    `name` keeps the ids in one figure different from those in the page's other figures.
    """
    out = io.StringIO()
    # None leaves out the date and the version of matplotlib.
    nothing: dict[str, Any] = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": f"shoal {name}"}), warnings.catch_warnings():
        # The browser draws the text with its own fonts, so glyphs missing from matplotlib's do not matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.execute(figure)
            figure.set_layout_engine("none")
        # `savefig` would draw everything twice
        FigureCanvasSVG(figure).print_svg(out, metadata=nothing)  # type: ignore[no-untyped-call]
    return out.getvalue()


def draw_bars(
    axes: Axes, heights: np.ndarray, edges: np.ndarray, *, bottom: float = 0.0, lying: bool = False
) -> None:
    """Draw bars between `edges` [bars + 1], vertical or horizontal; many bars become one filled outline."""
    if len(heights) > MOST_BARS:
        direction: Literal["horizontal", "vertical"] = "horizontal" if lying else "vertical"
        drawn = np.maximum(heights, bottom)
        axes.stairs(drawn, edges, orientation=direction, baseline=bottom, fill=True, color=BAR, linewidth=0)
        return
    middles, widths = (edges[1:] + edges[:-1]) / 2, 0.86 * np.diff(edges)
    lengths = np.maximum(heights - bottom, 0)
    if lying:
        axes.barh(middles, lengths, widths, bottom, color=BAR)
    else:
        axes.bar(middles, lengths, widths, bottom, color=BAR)


def whole_ticks(most: int) -> MaxNLocator:
    """A locator for at most `most` ticks, at whole numbers."""
    return MaxNLocator(nbins=most, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)


def log_scale(axes: Axes, which: Literal["x", "y"]) -> None:
    """Switch one axis of a drawn chart to a log scale with plain tick labels, and say so in its title."""
    plain = FuncFormatter(lambda value, _: f"{value:,.0f}" if 1 <= value < 1e9 else f"{value:g}")
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    # Within two decades the powers of ten alone are too few ticks.
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axis.set_major_formatter(plain)
    axis.set_minor_formatter(NullFormatter())
    axis.set_label_text(f"{axis.get_label_text()}, log scale")


def spread_apart(places: Sequence[float], gap: float) -> list[float]:
    """The places in [0, 1] nearest to `places` (least squares) in the same order, `gap` or more apart."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    # Without its share of the gaps each place must be no lower than the one before: an isotonic
    # regression, solved by pooling neighbours that violate it.
    pools: list[tuple[float, int]] = []
    for rank, i in enumerate(order):
        pools.append((places[i] - rank * gap, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
    top = max(0.0, 1 - (len(places) - 1) * gap)
    flat = [min(max(value, 0.0), top) for value, count in pools for _ in range(count)]
    spread = [0.0] * len(places)
    for rank, i in enumerate(order):
        spread[i] = flat[rank] + rank * gap
    return spread


def short(label: str, length: int = 26) -> str:
    """An external text (a label, a name), cleaned and shortened for a chart."""
    # Control characters are not allowed in XML.
    clean = "".join(c if c.isprintable() else " " for c in label)
    cut = clean if len(clean) <= length else clean[: length - 1] + "…"
    return cut.replace("$", r"\$")  # matplotlib would typeset text between two dollar signs as a formula
