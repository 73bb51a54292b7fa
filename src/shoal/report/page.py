"""Self-contained HTML pages: the report of one run or the comparison of several; also single charts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from shoal.core.errors import SpecError
from shoal.report.canvas import WIDTH
from shoal.report.comparison_page import comparison_page, comparison_sketches
from shoal.report.run_page import run_sketches, single_page
from shoal.report.runs import RunView


def render(runs: Sequence[RunView], title: str) -> str:
    """Render one self-contained HTML page for one run, or for several side by side. Same runs, same bytes."""
    if not runs:
        raise SpecError("a report needs at least one run, got none; name one or more run directories")
    try:
        return single_page(runs[0], title) if len(runs) == 1 else comparison_page(runs, title)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # directories may come from anywhere; records written by Shoal do not raise these errors
        raise SpecError(
            f"the runs cannot be shown: their records are not what Shoal writes ({error!r})"
        ) from error


def write_report(runs: Sequence[RunView], path: Path, title: str) -> None:
    """Write the page to `path` atomically."""
    text = render(runs, title)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(draft, 0o644)  # temporary files are readable by their owner only, reports by everybody
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def chart_of(runs: Sequence[RunView], title: str | None = None) -> Figure:
    """The chart with this title on the page of these runs; by default the first, the accuracy over rounds."""
    sections = run_sketches(runs[0]) if len(runs) == 1 else comparison_sketches(runs)
    sketches = [sketch for section in sections.values() for sketch in section]
    wanted = [sketch for sketch in sketches if title is None or sketch.title.lower() == title.lower()]
    drawn = wanted[0].draw(WIDTH) if wanted else None
    if drawn is None:
        known = ", ".join(f'"{sketch.title}"' for sketch in sketches if sketch.draw(WIDTH) is not None)
        missing = title or sketches[0].title
        raise SpecError(f'these runs have no chart "{missing}"; they have {known or "none"}')
    return drawn
