"""Commands that list the entries of the catalogues.

They read `lists.json`, which `make lists` generates from the catalogues, since importing those takes seconds.
"""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Any

import typer

from shoal.cli.options import JsonFlag
from shoal.core.errors import SpecError

LISTS = {  # command -> the word for one entry
    "methods": "method",
    "datasets": "data set",
    "models": "model",
    "selectors": "selector",
    "codecs": "codec",
    "attacks": "attack",
}
FILE = Path(__file__).with_name("lists.json")


def lister(command: str) -> Any:
    """The command that prints one of the lists."""

    def show(context: typer.Context, json: JsonFlag = False) -> None:
        name = _one(context.args)
        entries = json_format.loads(FILE.read_text(encoding="utf-8"))[command]
        if name:
            if name not in entries:
                raise _unknown(name, entries, command)
            entries = {name: entries[name]}
        if json:
            print(json_format.dumps(entries))
            return
        from shoal.terminal import show_table, stdout

        if not name:
            show_table(
                None,
                [LISTS[command].capitalize(), "Description"],
                [[key, entry["summary"]] for key, entry in entries.items()],
            )
            stdout().print(f"Fields and defaults: shoal {command} NAME")
            return
        fields = entries[name]["fields"]
        rows = [[field, _told(value)] for field, value in fields.items()]
        show_table(f"{name}: {entries[name]['summary']}", ["Field", "Default"] if rows else [], rows)

    return show


def _one(names: list[str]) -> str:
    """The name that was given, or "". Declared as an argument, it would make typer load pydantic."""
    if len(names) > 1:
        raise SpecError(f"give one name, got {' '.join(names)}")
    return names[0] if names else ""


def _told(value: Any) -> str:
    return "none" if value is None else json_format.dumps(value)


def _unknown(name: str, entries: dict[str, Any], command: str) -> SpecError:
    import difflib

    near = difflib.get_close_matches(name, entries, n=1)
    cure = f"did you mean {near[0]}?" if near else f"`shoal {command}` lists them"
    return SpecError(f"unknown {LISTS[command]} {name}; {cure}")


def write_lists() -> None:
    """Regenerate the lists after a change of a catalogue."""
    from shoal.catalogues import listed

    text = json_format.dumps(listed(), indent=2, ensure_ascii=False, allow_nan=False)
    FILE.write_text(text + "\n", encoding="utf-8")
