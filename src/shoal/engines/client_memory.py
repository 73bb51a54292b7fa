"""The clients' memories in a simulation."""

from __future__ import annotations

import mmap
import shutil
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from shoal.core.engine import Memory
from shoal.core.serialization import from_buffer, to_bytes
from shoal.core.tree import tensor_bytes
from shoal.core.types import Version

BUDGET = 2**30  # bytes of memories kept in RAM; the others are on disk and memory-mapped when read

Entry = tuple[int, Version]  # client and version


class MemoryStore:
    """For each client, its last accepted memory and the one whose reply is not accepted yet.

    Every exchange says which version was accepted last. An accepted version replaces the one before it; a
    version from an exchange whose reply was rejected or lost is deleted in the client's next exchange, so
    that such an exchange has no effect. Clients without a memory take no space; memories that have not been
    used for long are moved to disk.
    """

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget, self._used = budget, 0
        self._versions: dict[int, set[Version]] = {}
        self._pending: dict[int, Version] = {}  # of clients that have two versions
        self._in_ram: OrderedDict[Entry, tuple[Memory, int]] = OrderedDict()  # oldest first, with their sizes
        self._on_disk: dict[Entry, Path] = {}
        self._folder: Path | None = None

    def read(self, client: int, version: Version | None) -> Memory | None:
        """The memory of that version; None for a client that has none yet."""
        if version is None:
            return None
        if (client, version) in self._in_ram:
            self._in_ram.move_to_end((client, version))
            return self._in_ram[client, version][0]
        with self._on_disk[client, version].open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        memory: Memory = from_buffer(memoryview(mapped))
        return memory

    def write(self, client: int, accepted: Version | None, pending: Version, memory: Memory) -> None:
        """Keep `memory` until it is known whether its reply was accepted."""
        for version in self._versions.get(client, set()) - {accepted}:
            self._forget((client, version))
        self._versions[client] = {pending} if accepted is None else {accepted, pending}
        self._pending.pop(client, None)
        if accepted is not None:
            self._pending[client] = pending
        self._keep((client, pending), memory)

    def forget_replaced(self, accepted: Mapping[int, Version]) -> None:
        """Delete the versions that accepted ones have replaced."""
        replaced = [client for client, pending in self._pending.items() if accepted.get(client) == pending]
        for client in replaced:
            kept = self._pending.pop(client)
            for version in self._versions[client] - {kept}:
                self._forget((client, version))
            self._versions[client] = {kept}

    def restore(self, client: int, version: Version, memory: Memory) -> None:
        """Store an accepted memory, from a checkpoint."""
        self.write(client, None, version, memory)

    def _keep(self, entry: Entry, memory: Memory) -> None:
        size = tensor_bytes(memory)
        self._in_ram[entry] = (memory, size)
        self._used += size
        while self._used > self._budget:
            oldest, (moved, size) = self._in_ram.popitem(last=False)
            self._used -= size
            self._on_disk[oldest] = self._path(oldest)
            self._on_disk[oldest].write_bytes(to_bytes(moved))

    def _forget(self, entry: Entry) -> None:
        if entry in self._in_ram:
            self._used -= self._in_ram.pop(entry)[1]
        else:
            self._on_disk.pop(entry).unlink()

    def _path(self, entry: Entry) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="shoal-memories-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        client, (round, leg) = entry
        return self._folder / f"{client}-{round}-{leg}"
