"""Read run directories: the spec, the record of every round, and the summary."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shoal.core.errors import SpecError

# These tables set where a run is computed and how often it is saved, not what it computes: two runs that
# differ only in these and in the seed are repetitions of each other.
_IRRELEVANT = ("seed", "engine", "checkpoint")


class RunView(NamedTuple):
    """One run. Runs with the same label are repetitions (seeds) of the same experiment."""

    label: str
    spec: Mapping[str, Any]
    rounds: Sequence[Mapping[str, Any]]  # as in rounds.jsonl: costs are per round, not running totals
    summary: Mapping[str, Any]  # empty while the run is unfinished

    @property
    def finished(self) -> bool:
        """Whether the run has finished."""
        return bool(self.summary)


def number(value: object) -> float | None:
    """`value` as a float; None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def table_of(spec: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The table `[name]` of a spec; empty if there is none."""
    table = spec.get(name)
    return table if isinstance(table, Mapping) else {}


def method_of(run: RunView) -> str:
    """The name of the run's method."""
    return str(table_of(run.spec, "method").get("name") or run.summary.get("method") or run.label)


def read_run(directory: Path, label: str | None = None) -> RunView:
    """Read a run directory, finished or not. Without a label, the run is labelled by its method."""
    path = directory / "spec.toml"
    if not path.is_file():
        raise SpecError(f"{directory} is not a run: it has no spec.toml; give one that `shoal run` wrote")
    try:
        spec = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # TOML's and Unicode's errors are of these kinds
        raise SpecError(f"{path} is not TOML ({error}); restore it or run again") from error
    rounds, summary = _read_rounds(directory / "rounds.jsonl"), _read_summary(directory / "summary.json")
    run = RunView(label or "", spec, rounds, summary)
    return run if label else run._replace(label=method_of(run) or directory.name)


def run_directories(paths: Sequence[Path]) -> list[Path]:
    """The run directories among `paths`; a folder of runs, such as a comparison, stands for its runs."""
    found = []
    for path in paths:
        inside = sorted(spec.parent for spec in path.glob("*/spec.toml")) if path.is_dir() else []
        found += inside if inside and not (path / "spec.toml").exists() else [path]
    return found


def read_runs(directories: Sequence[Path]) -> list[RunView]:
    """Read several runs, labelled by method and, where a method's settings vary, by these settings."""
    return relabel([read_run(directory) for directory in directories])


def relabel(runs: Sequence[RunView]) -> list[RunView]:
    """Add settings to a label if they differ between its runs: `fedprox mu=0.1`."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault(run.label, []).append(settings_of(run))
    labelled = []
    for run in runs:
        differing = varying(groups[run.label])
        own = settings_of(run)
        told = [f"{key.rpartition('.')[2]}={brief(own[key])}" for key in differing if key in own]
        labelled.append(run._replace(label=" ".join([run.label, *told])))
    return labelled


def flatten(spec: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A spec as one flat table with dotted keys, in the order of the spec."""
    flat: dict[str, Any] = {}
    for key, value in spec.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def varying(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys whose values differ between `settings`, in order of appearance."""
    keys = dict.fromkeys(key for setting in settings for key in setting)
    absent = object()  # differs from every value, None too
    return [
        key for key in keys if any(s.get(key, absent) != settings[0].get(key, absent) for s in settings[1:])
    ]


def brief(value: Any) -> str:
    """A setting as text: strings without quotes, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def settings_of(run: RunView) -> dict[str, Any]:
    """The settings that determine what a run computes, with dotted keys, except for the seed."""
    return {key: value for key, value in flatten(run.spec).items() if key.split(".")[0] not in _IRRELEVANT}


def _read_rounds(path: Path) -> list[Mapping[str, Any]]:
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = text.split("\n")
    # A crash, or a run still being written, may leave half a line at the end.
    whole, rest = lines[:-1], lines[-1]
    rounds = [_parse_round(path, place, line) for place, line in enumerate(whole, 1) if line.strip()]
    try:
        return [*rounds, _parse_round(path, len(lines), rest)] if rest.strip() else rounds
    except SpecError:
        return rounds


def _parse_round(path: Path, place: int, line: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SpecError(
            f"{path}, line {place} is not JSON ({error}); remove the line or run again"
        ) from error
    if not isinstance(row, dict) or not isinstance(row.get("round"), int):
        raise SpecError(f"{path}, line {place} has no whole number `round`; remove the line or run again")
    return row


def _read_summary(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path} is not JSON ({error}); delete it and resume the run") from error
    if not isinstance(summary, dict):
        raise SpecError(f"{path} must hold one JSON object; delete it and resume the run")
    return summary
