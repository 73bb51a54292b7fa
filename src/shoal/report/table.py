"""The table that compares runs by mean and standard deviation over seeds, for pages and the terminal."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from shoal.report.runs import RunView, number

Mark = Literal["best", "tie", ""]
FEWEST = 3  # seeds required for a statement about a difference
NOTHING = "–"  # shown where there is no number


class Stat(NamedTuple):
    """Mean and sample standard deviation over seeds; the deviation of a single seed is 0."""

    mean: float
    std: float


class Row(NamedTuple):
    """The results of one label over its seeds. A metric is None if no run of the label has it."""

    label: str
    seeds: int  # number of runs
    finished: int  # number of runs with a summary: the statistics are over these
    final_accuracy: Stat | None = None
    max_accuracy: Stat | None = None
    mean_accuracy: Stat | None = None
    mean_client_accuracy: Stat | None = None
    worst_client_accuracy: Stat | None = None
    finetuned_mean_client_accuracy: Stat | None = None
    finetuned_worst_client_accuracy: Stat | None = None
    final_mse: Stat | None = None
    bytes_up: Stat | None = None
    bytes_down: Stat | None = None
    seconds: Stat | None = None
    total_seconds: Stat | None = None
    virtual_seconds: Stat | None = None
    personalised: bool = False  # whether clients have models of their own instead of a global one

    def stat(self, metric: str) -> Stat | None:
        """The statistic of a metric by its name in `COLUMNS`."""
        found: Stat | None = getattr(self, metric)
        return found


class Column(NamedTuple):
    """How a metric is shown. Shares (0 to 1) are printed in percent, and the title says so."""

    title: str
    kind: Literal["share", "plain", "bytes", "seconds"]
    larger_is_better: bool = False


COLUMNS: Mapping[str, Column] = {
    "final_accuracy": Column("Final accuracy (%)", "share", True),
    "max_accuracy": Column("Max accuracy (%)", "share", True),
    "mean_accuracy": Column("Mean accuracy (%)", "share", True),
    "final_mse": Column("Final MSE", "plain"),
    "mean_client_accuracy": Column("Mean client (%)", "share", True),
    "worst_client_accuracy": Column("Worst tenth (%)", "share", True),
    "finetuned_mean_client_accuracy": Column("Fine-tuned (%)", "share", True),
    "finetuned_worst_client_accuracy": Column("Fine-tuned worst (%)", "share", True),
    "bytes_up": Column("Sent up", "bytes"),
    "bytes_down": Column("Sent down", "bytes"),
    "seconds": Column("Training time", "seconds"),
    "total_seconds": Column("With evaluation", "seconds"),
    "virtual_seconds": Column("Simulated time", "seconds"),
}


def over_seeds(values: Sequence[object]) -> Stat | None:
    """Mean and deviation of the finite numbers among the values; None if there are none."""
    known = [value for entry in values if (value := number(entry)) is not None]
    if not known:
        return None
    return Stat(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else 0.0)


def comparison_rows(runs: Sequence[RunView]) -> list[Row]:
    """One row per label, in order of first appearance, over its finished runs."""
    groups: dict[str, list[RunView]] = {}
    for run in runs:
        groups.setdefault(run.label, []).append(run)
    rows = []
    for label, group in groups.items():
        stats: dict[str, Any] = {
            metric: over_seeds([run.summary.get(metric) for run in group]) for metric in COLUMNS
        }
        own = any(run.summary.get("personalised") for run in group)
        rows.append(Row(label, len(group), sum(run.finished for run in group), **stats, personalised=own))
    return rows


def shown_columns(rows: Sequence[Row]) -> dict[str, Column]:
    """The columns in which at least one row has a number.

    If clients have models of their own, client accuracy comes first: it is what such methods optimise.
    """
    found = {name: column for name, column in COLUMNS.items() if any(row.stat(name) for row in rows)}
    first = [name for name in found if "client" in name] if any(row.personalised for row in rows) else []
    return {name: found[name] for name in (*first, *(name for name in found if name not in first))}


def marks(rows: Sequence[Row], metric: str) -> list[Mark]:
    """Mark the rows with the best mean, and those within one standard deviation (of the best) of it.

    If all rows would be marked, none is, since marks would carry no information; nor if any row has fewer
    than three seeds.
    """
    if any(row.finished < FEWEST for row in rows):
        return [""] * len(rows)
    stats = [row.stat(metric) for row in rows]
    known = [stat for stat in stats if stat is not None]
    if not known:
        return [""] * len(rows)
    sign = 1.0 if COLUMNS[metric].larger_is_better else -1.0
    best = max(sign * stat.mean for stat in known)
    # If several rows share the best mean, the largest deviation counts, independent of their order.
    spread = max(stat.std for stat in known if sign * stat.mean == best)
    found: list[Mark] = []
    for stat in stats:
        if stat is None or best - sign * stat.mean > spread:
            found.append("")
        else:
            found.append("best" if sign * stat.mean == best else "tie")
    return found if "" in found else [""] * len(rows)


def stat_text(metric: str, stat: Stat | None) -> str:
    """A cell of the table, such as `87.31 ± 0.42` or `31.2 MB`; a deviation that rounds to 0 is left out."""
    if stat is None:
        return NOTHING
    kind = COLUMNS[metric].kind
    if kind == "share":
        return _pair(100 * stat.mean, 100 * stat.std, 2, "")
    if kind == "plain":
        return _pair(stat.mean, stat.std, _decimals(stat.mean, 4), "")
    scale, unit = byte_unit(stat.mean) if kind == "bytes" else second_unit(stat.mean)
    mean = stat.mean / scale
    return _pair(mean, stat.std / scale, 0 if unit == "B" else _decimals(mean, 3), f" {unit}")


def human_bytes(count: float | None) -> str:
    """A byte count with three significant digits, in powers of 1,000: `62 kB`, `1.23 MB`."""
    if count is None or not math.isfinite(count):
        return NOTHING
    scale, unit = byte_unit(count)
    return f"{count / scale:.{0 if unit == 'B' else _decimals(count / scale, 3)}f} {unit}"


def human_seconds(seconds: float | None) -> str:
    """A duration in words: `850 ms`, `12.3 s`, `4 min 05 s`, `2 h 13 min`, `3 d 04 h`."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if 0 < seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.2g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    if seconds < 3599.5:
        return "{} min {:02d} s".format(*divmod(round(seconds), 60))
    if seconds < 86370:
        return "{} h {:02d} min".format(*divmod(round(seconds / 60), 60))
    return "{} d {:02d} h".format(*divmod(round(seconds / 3600), 24))


def byte_unit(count: float) -> tuple[float, str]:
    """The unit in which `count` has at most three digits before the point, and its number of bytes."""
    return _unit(count, ((1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")))


def second_unit(seconds: float) -> tuple[float, str]:
    """The unit for a duration: seconds up to 5 minutes, minutes up to 5 hours, then hours."""
    return (1.0, "s") if seconds < 300 else (60.0, "min") if seconds < 18000 else (3600.0, "h")


def _unit(value: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    for scale, name in units:
        if abs(value) < 999.5 * scale:
            return scale, name
    return units[-1]


def _decimals(value: float, digits: int) -> int:
    """The number of decimals that gives `value` `digits` significant digits."""
    if value == 0:
        return digits - 1
    size = math.floor(math.log10(abs(value)))
    # 9.995 prints as 10.0, not as 10.00: determine the size again after rounding.
    size = math.floor(math.log10(abs(round(value, max(0, digits - 1 - size))) or 1))
    return max(0, digits - 1 - size)


def _pair(mean: float, std: float, decimals: int, unit: str) -> str:
    deviation = f"{std:.{decimals}f}"
    plus = f" ± {deviation}" if float(deviation) > 0 else ""
    return f"{mean:.{decimals}f}{plus}{unit}"
