"""Conversion of the arguments of `shoal.run` and `shoal.compare` to the tables of a spec."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.config import Table
from shoal.core.errors import SpecError
from shoal.spec import Spec, from_table, load_table, to_table

Given = Spec | Mapping[str, Any] | str | Path | None
SHORTCUTS = ("dataset", "model")  # keywords that stand for fields of [task]


def as_tables(spec: Given, changes: Mapping[str, Any]) -> Table:
    """The tables of a spec in any of its forms, with `changes` applied.

    A table in `changes` is merged into that of the spec, field by field.
    """
    if isinstance(spec, Spec):
        table: Table = to_table(spec)
        table["task"] |= {"dataset": spec.task.dataset, "model": spec.task.model}
    else:
        table = load_table(Path(spec)) if isinstance(spec, str | Path) else dict(spec or {})
    for name, value in changes.items():
        if name in SHORTCUTS:
            table["task"] = {**table.get("task", {}), name: value}
        elif isinstance(value, Mapping) and isinstance(table.get(name), Mapping):
            table[name] = {**table[name], **value}
        else:
            table[name] = value
    return table


def as_spec(spec: Given, changes: Mapping[str, Any] | None = None) -> Spec:
    """The spec, from any of its forms."""
    if isinstance(spec, Spec) and not changes:
        return spec
    table = as_tables(spec, changes or {})
    unknown = set(table) - {*Spec.__dataclass_fields__, "local"}
    if unknown & {"lr", "epochs", "batch", "momentum"}:
        name = sorted(unknown & {"lr", "epochs", "batch", "momentum"})[0]
        raise SpecError(f"unknown key {name}; did you mean local={{{name!r}: ...}}?")
    return from_table(table)
