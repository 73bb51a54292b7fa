"""Where a simulation keeps what its clients remember."""

from __future__ import annotations

from shoal.core.engine import Memory
from shoal.core.types import Version


class MemoryStore:
    """For each client its last accepted memory and the one that awaits acceptance.

    A client is told which version was accepted last. The other one, made in an exchange whose reply was
    rejected or lost, is forgotten at its next visit: so such an exchange leaves no trace.
    """

    def __init__(self) -> None:
        self._kept: dict[int, dict[Version, Memory]] = {}

    def read(self, client: int, version: Version) -> Memory:
        """The memory of that version."""
        return self._kept[client][version]

    def write(self, client: int, accepted: Version | None, pending: Version, memory: Memory) -> None:
        """Keep `memory` until it is known whether it was accepted."""
        kept = self._kept.get(client, {})
        before = {} if accepted is None else {accepted: kept[accepted]}
        self._kept[client] = {**before, pending: memory}

    def restore(self, client: int, version: Version, memory: Memory) -> None:
        """Put back an accepted memory."""
        self._kept[client] = {version: memory}
