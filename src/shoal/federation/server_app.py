"""The code of Flower's ServerApp: Shoal's loop over the grid, with its own polling."""

from __future__ import annotations

import fcntl
import json
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.engines.os_settings import die_with_parent
from shoal.federation.letters import Letter, Returned
from shoal.federation.rounds import ServerPlan, run_rounds

TTL = 7 * 86400.0  # seconds that a message may take
PLAN, STATUS, LOG, FAILED, BELL = "plan.json", "status.json", "server.log", "failed.txt", "bell"


class GridPost:
    """Sends letters over Flower's grid, and notifies the nodes waiting at the gateway ("rings the bell")."""

    def __init__(self, grid: Any, bell: Path) -> None:
        self._grid, self._bell = grid, bell

    def nodes(self) -> Sequence[int]:
        """See `Post`."""
        return list(self._grid.get_node_ids())

    def send(self, letters: Sequence[Letter]) -> Sequence[str | None]:
        """See `Post`."""
        from flwr.app import ConfigRecord, Message, RecordDict

        numbers: list[str | None] = []
        for letter in letters:  # one at a time, since the size of a request is limited
            record = ConfigRecord({"job": letter.job, "packet": letter.packet})
            message = Message(RecordDict({"shoal": record}), letter.node, "query.shoal", ttl=TTL)
            numbers += list(self._grid.push_messages([message])) or [None]
        self._bell.touch()
        return numbers

    def receive(self, numbers: Sequence[str]) -> Sequence[Returned]:
        """See `Post`."""
        found = []
        for message in self._grid.pull_messages(list(numbers)):
            number = message.metadata.reply_to_message_id
            if message.has_error():
                found.append(Returned(number, b"", b"", f"{message.error.reason or 'no reply'}"))
                continue
            try:
                record = message.content["shoal"]
                found.append(Returned(number, record["job"], record["packet"]))
            except (KeyError, TypeError) as error:
                found.append(Returned(number, b"", b"", f"its reply cannot be read: {error}"))
        return found


def serve(grid: Any, folder: str) -> None:
    """Run the federation whose plan is in a folder."""
    die_with_parent()
    place = Path(folder)
    with (place / "lock").open("w") as lock, (place / LOG).open("a", buffering=1, encoding="utf-8") as log:
        fcntl.flock(lock, fcntl.LOCK_EX)  # wait until a loop that is left over has ended

        def say(line: str) -> None:
            print(time.strftime("%H:%M:%S"), line, file=log)

        try:
            table = json.loads((place / PLAN).read_text(encoding="utf-8"))
            nodes = table["nodes"] and {int(node): number for node, number in table["nodes"].items()}
            plan = ServerPlan(**{**table, "nodes": nodes})
            run_rounds(GridPost(grid, place / BELL), plan, place / STATUS, say)
        except BaseException as error:
            say("".join(traceback.format_exception(error)))
            lines = str(error).split("\n\n")[0]
            (place / FAILED).write_text(f"{type(error).__name__}: {lines}", encoding="utf-8")
            raise
