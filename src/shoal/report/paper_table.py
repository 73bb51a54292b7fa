"""Comparisons for a paper: mean, deviation and paired differences over seeds, as CSV, LaTeX or Markdown."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from shoal.core.errors import SpecError
from shoal.report.runs import RunView, number
from shoal.report.table import COLUMNS, FEWEST, NOTHING, Row, comparison_rows, marks, shown_columns, stat_text

LEVEL = 0.95  # of the confidence intervals


class PairedDifference(NamedTuple):
    """A label minus the first label, paired by seed: the mean, and half the width of its interval."""

    mean: float
    half: float | None  # None with fewer than three seeds
    seeds: int


def paired(runs: Sequence[RunView], metric: str) -> dict[str, PairedDifference]:
    """Label -> its difference from the first label, over the seeds that both have finished.

    The interval is the 95 % confidence interval of the mean difference, by Student's t.
    """
    values: dict[str, dict[object, float]] = {}
    for run in runs:
        found = number(run.summary.get(metric))
        if found is not None:
            values.setdefault(run.label, {})[run.spec.get("seed")] = found
    labels = list(dict.fromkeys(run.label for run in runs))
    first = values.get(labels[0], {}) if labels else {}
    differences = {}
    for label in labels[1:]:
        mine = values.get(label, {})
        apart = [mine[seed] - first[seed] for seed in mine if seed in first]
        if apart:
            differences[label] = PairedDifference(statistics.fmean(apart), _half(apart), len(apart))
    return differences


def _half(values: Sequence[float]) -> float | None:
    if len(values) < FEWEST:
        return None
    from scipy.stats import t  # slow to import

    spread = statistics.stdev(values) / math.sqrt(len(values))
    return float(t.ppf((1 + LEVEL) / 2, len(values) - 1)) * spread


def difference_text(metric: str, difference: PairedDifference | None) -> str:
    """A text such as `+1.20 [0.35, 2.05]`; without an interval if there are too few seeds."""
    if difference is None:
        return NOTHING
    factor, decimals = (100, 2) if COLUMNS[metric].kind == "share" else (1, 4)
    mean = f"{factor * difference.mean:+.{decimals}f}"
    if difference.half is None:
        return mean
    low, high = (factor * (difference.mean + sign * difference.half) for sign in (-1, 1))
    return f"{mean} [{low:.{decimals}f}, {high:.{decimals}f}]"


def main_metric(rows: Sequence[Row]) -> str:
    """The main metric of the comparison: its first column."""
    return next(iter(shown_columns(rows)), "final_accuracy")


def paper_table(runs: Sequence[RunView], form: str) -> str:
    """The table as text in one of `FORMS`."""
    if form not in FORMS:
        raise SpecError(f"--format must be one of {', '.join(FORMS)}; got {form!r}")
    rows = comparison_rows(runs)
    if form == "csv":
        return _csv(runs, rows)
    metric = main_metric(rows)
    columns = {
        n: c for n, c in shown_columns(rows).items() if c.kind in ("share", "plain") or n == "bytes_up"
    }
    differences = paired(runs, metric)
    best = {name: marks(rows, name) for name in columns}
    head = ["Method", "Seeds", *(column.title for column in columns.values())]
    if differences:
        head.append(f"Difference to {rows[0].label}")
    lines = []
    for place, row in enumerate(rows):
        cells = [(row.label, False), (str(row.finished), False)]
        cells += [(stat_text(n, row.stat(n)), best[n][place] == "best") for n in columns]
        if differences:
            cells.append((difference_text(metric, differences.get(row.label)), False))
        lines.append(cells)
    seeds = f"Mean ± standard deviation over seeds; difference in {COLUMNS[metric].title.lower()}, "
    note = seeds + f"paired by seed, with its {LEVEL:.0%} confidence interval."
    return FORMS[form](head, lines, note if differences else "")


Cells = Sequence[Sequence[tuple[str, bool]]]  # each a text, and whether it is bold


def _markdown(head: Sequence[str], lines: Cells, note: str) -> str:
    rows = [head, ["---", *["--:"] * (len(head) - 1)]]
    rows += [[f"**{text}**" if bold else text.replace("|", "\\|") for text, bold in line] for line in lines]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{table}\n\n{note}\n" if note else f"{table}\n"


_LATEX: Mapping[str, str] = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{
        "±": r"$\pm$",
        "–": "--",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
    },
}


def _latex(head: Sequence[str], lines: Cells, note: str) -> str:
    def escaped(text: str) -> str:
        return "".join(_LATEX.get(c, c) for c in text)

    body = [
        " & ".join(f"\\textbf{{{escaped(t)}}}" if bold else escaped(t) for t, bold in line) for line in lines
    ]
    return "\n".join(
        [
            *([f"% {note}"] if note else []),
            "\\begin{tabular}{l" + "r" * (len(head) - 1) + "}  % needs the package booktabs",
            "\\toprule",
            " & ".join(map(escaped, head)) + " \\\\",
            "\\midrule",
            *(f"{line} \\\\" for line in body),
            "\\bottomrule",
            "\\end{tabular}",
            "",
        ]
    )


def _csv(runs: Sequence[RunView], rows: Sequence[Row]) -> str:
    """Full precision, one row per label: mean and deviation of every column, and the paired difference."""
    columns, out = shown_columns(rows), io.StringIO()
    metric = main_metric(rows)
    differences = paired(runs, metric)
    head = ["label", "seeds"]
    for name in columns:
        head += [name, f"{name}_std"]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*head, f"{metric}_difference", "difference_low", "difference_high"])
    for row in rows:
        cells: list[object] = [row.label, row.finished]
        for name in columns:
            stat = row.stat(name)
            cells += ["", ""] if stat is None else [stat.mean, stat.std if row.finished > 1 else ""]
        apart = differences.get(row.label)
        cells.append("" if apart is None else apart.mean)
        half = None if apart is None else apart.half
        cells += ["", ""] if apart is None or half is None else [apart.mean - half, apart.mean + half]
        writer.writerow(cells)
    return out.getvalue()


FORMS: Mapping[str, Callable[[Sequence[str], Cells, str], str]] = {
    "csv": lambda head, lines, note: "",  # not used: `_csv` has its own rows and columns
    "latex": _latex,
    "markdown": _markdown,
}
ENDINGS = {".csv": "csv", ".tex": "latex", ".md": "markdown"}
