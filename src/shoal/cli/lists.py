"""Commands that list what the catalogues hold.

They read `lists.json`, which `make lists` writes from the catalogues: to import these takes seconds.
"""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Any

from shoal.cli.options import JsonFlag

LISTS = {  # commands, and what one entry is called
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

    def show(json: JsonFlag = False) -> None:
        entries = json_format.loads(FILE.read_text(encoding="utf-8"))[command]
        if json:
            print(json_format.dumps(entries))
            return
        from shoal.terminal import show_table

        rows = [[name, entry["summary"], _told(entry["fields"])] for name, entry in entries.items()]
        show_table(None, [LISTS[command].capitalize(), "What it is", "Fields and defaults"], rows)

    return show


def _told(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {json_format.dumps(value)}" for name, value in fields.items())


def write_lists() -> None:
    """Write the lists anew, after a change of a catalogue."""
    from shoal.catalogues import listed

    text = json_format.dumps(listed(), indent=2, ensure_ascii=False, allow_nan=False)
    FILE.write_text(text + "\n", encoding="utf-8")
