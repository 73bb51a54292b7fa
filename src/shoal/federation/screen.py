"""The display of a running server: the sites, their activity, the last round, refused replies."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

COLOURS = {"ready": "green", "refused": "red", "joining": "yellow"}


class Screen:
    """A live table on a terminal; otherwise, a line for every change."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True)
        self._title, self._began = title, time.monotonic()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._said: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, status: Mapping[str, Any]) -> None:
        """Show the state of a server."""
        if self._live is not None:
            self._live.update(table_of(self._title, status, time.monotonic() - self._began), refresh=True)
            return
        self._line("server", status["phase"])
        for site in status["sites"]:
            self._line(site["name"], site["state"] + (f": {site['reason']}" if site["reason"] else ""))
        if status.get("last"):
            self._line("round", f"{status['round']} of {status['rounds']}, {measured(status['last'])}")

    def _line(self, whom: str, text: str) -> None:
        if self._said.get(whom) != text:
            self._said[whom] = text
            print(f"{time.strftime('%H:%M:%S')} {whom}: {text}", file=sys.stderr, flush=True)


def measured(record: Mapping[str, Any]) -> str:
    """The metrics of a round as text."""
    found = [f"{record['seconds']:.1f} s", f"{len(record['cohort'])} sites"]
    if record.get("accuracy") is not None:
        found.append(f"accuracy {100 * record['accuracy']:.1f} %")
    elif record.get("clients.sent_accuracy") is not None:
        found.append(f"accuracy before it {100 * record['clients.sent_accuracy']:.1f} %")
    if record.get("mse") is not None:
        found.append(f"mean squared error {record['mse']:.4g}")
    if record["rejected"]:
        found.append(f"{len(record['rejected'])} refused")
    return ", ".join(found)


def table_of(title: str, status: Mapping[str, Any], seconds: float) -> Any:
    """The table on the screen, for Rich."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", caption_justify="left", expand=True)
    for name in ("site", "state", "samples", "replies", "refused", "activity, or reason of refusal"):
        table.add_column(name, justify="right" if name in ("samples", "replies", "refused") else "left")
    for site in status["sites"]:
        state = Text(site["state"], style=COLOURS.get(site["state"], "dim"))
        said = site["doing"] or site["reason"]
        numbers = (str(site[name] or "") for name in ("samples", "replies", "refused"))
        table.add_row(site["name"], state, *numbers, said)
    line = f"{status['phase']} · round {status['round']} of {status['rounds']} · {seconds:.0f} s"
    if status.get("last"):
        line += f"\nlast round: {measured(status['last'])}"
    table.caption = line
    return table
