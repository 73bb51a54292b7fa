"""Self-contained HTML pages: the report of one run, or the comparison of several."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from shoal.core.errors import SpecError
from shoal.report.comparison_page import comparison_page
from shoal.report.run_page import single_page
from shoal.report.runs import RunView


def render(runs: Sequence[RunView], title: str) -> str:
    """One self-contained HTML page: of one run, or of several side by side. Same runs, same bytes."""
    if not runs:
        raise SpecError("a report needs at least one run, got none; name one or more run directories")
    try:
        return single_page(runs[0], title) if len(runs) == 1 else comparison_page(runs, title)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # directories may come from anybody; what Shoal wrote has these fields in these forms
        raise SpecError(
            f"the runs cannot be shown: their records are not what Shoal writes ({error!r})"
        ) from error


def write_report(runs: Sequence[RunView], path: Path, title: str) -> None:
    """Write the page to `path`, whole or not at all."""
    text = render(runs, title)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(draft, 0o644)  # a temporary file is readable by its owner only, a report by everybody
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
