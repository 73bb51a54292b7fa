"""Commands that list what a catalogue holds."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from shoal.catalogues import CATALOGUES, DATASET, METHOD, MODEL
from shoal.cli.options import JsonFlag
from shoal.config import MISSING, Catalogue, arguments, write
from shoal.core.attack import Attack
from shoal.core.codec import Codec
from shoal.core.selector import Selector
from shoal.runs.directory import to_json
from shoal.terminal import show_table

LISTS: dict[str, Catalogue] = {
    "methods": METHOD,
    "datasets": DATASET,
    "models": MODEL,
    "selectors": CATALOGUES[Selector],
    "codecs": CATALOGUES[Codec],
    "attacks": CATALOGUES[Attack],
}


def lister(catalogue: Catalogue) -> Any:
    """A command that lists the catalogue."""

    def show(json: JsonFlag = False) -> None:
        entries = catalogue.entries.items()
        if json:
            print(to_json({name: {"summary": summary_line(e), "fields": _fields(e)} for name, e in entries}))
            return
        rows = [[name, summary_line(e), _told(_fields(e))] for name, e in entries]
        show_table(None, [catalogue.kind.capitalize(), "What it is", "Fields and defaults"], rows)

    return show


def _fields(entry: Callable[..., Any]) -> dict[str, Any]:
    """What a table may set, with the defaults; the solver has a table of its own."""
    return {
        name: None if argument.default is MISSING else write(argument.default, CATALOGUES)
        for name, argument in arguments(entry).items()
        if name != "local"
    }


def _told(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {to_json(value)}" for name, value in fields.items())


def summary_line(constructor: Any) -> str:
    """The first line of what a constructor says of itself."""
    return (inspect.getdoc(constructor) or "").split("\n")[0]
