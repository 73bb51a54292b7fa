"""Changes to a spec's tables: single settings, and another method."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from shoal.catalogues import CATALOGUES, METHOD
from shoal.config import Catalogue, Table, arguments, choose
from shoal.core.errors import SpecError
from shoal.spec import PARTS, TAGS


def with_settings(table: Table, settings: Iterable[str]) -> Table:
    """The table with `path.to.field=value` settings applied; a value that is not TOML is a string."""
    table = _copied(table)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not all(name.strip() for name in path.split(".")):
            raise SpecError(f"--set {setting!r} must look like path.to.field=value, e.g. local.lr=0.1")
        table = with_values(table, {path.strip(): value_of(text.strip())})
    return table


def with_values(table: Table, values: Mapping[str, Any]) -> Table:
    """The table with new values for some fields, which are given by their paths."""
    table = _copied(table)
    for path, value in values.items():
        names, setting = [name.strip() for name in path.split(".")], f"{path}={value}"
        inner = table
        for name in names[:-1]:
            if isinstance(inner.get(name), str) and name in TAGS:  # a part given by its name alone
                inner[name] = {TAGS[name]: inner[name]}
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise SpecError(f"--set {setting!r}: {name} is a value, not a table")
        if len(names) == 2 and names[1] == TAGS.get(names[0]):
            table[names[0]] = inner = _of_another_kind(inner, CATALOGUES[PARTS[names[0]]], value)
        inner[names[-1]] = value
    return table


def _of_another_kind(table: Table, catalogue: Catalogue, name: Any) -> Table:
    """The fields of a part's table that another part of the same kind also has."""
    known = arguments(choose(catalogue, name, f"{catalogue.kind}.{catalogue.tag}"))
    return {field: value for field, value in table.items() if field in known}


def with_method(table: Table, name: str) -> Table:
    """The table with another method; fields of the old method are dropped.

    If the method needs a selector of its own, that is set too.
    """
    method = table.get("method", {})
    same = isinstance(method, dict) and method.get("name", "fedavg") == name
    table = {**table, "method": {**(method if same else {}), "name": name}}
    selector = getattr(choose(METHOD, name, "method.name"), "selector", "")
    return with_settings(table, [f"selector.name={selector}"]) if selector and not same else table


def _copied(value: Any) -> Any:
    return {name: _copied(v) for name, v in value.items()} if isinstance(value, dict) else value


def value_of(text: str) -> Any:
    """The text parsed as a TOML value, or the text itself if it is not one."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
