"""Where a simulation keeps what its clients remember."""

from __future__ import annotations

import mmap
import shutil
import tempfile
import weakref
from collections import OrderedDict
from pathlib import Path

from shoal.core.engine import Memory
from shoal.core.serialization import from_buffer, to_bytes
from shoal.core.tree import tensor_bytes
from shoal.core.types import Version

BUDGET = 2**30  # bytes of memories that stay in memory; the others lie on disk, mapped when they are read

Place = tuple[int, Version]  # whose memory, and which


class MemoryStore:
    """For each client its last accepted memory and the one that awaits acceptance.

    A client is told which version was accepted last. The other one, made in an exchange whose reply was
    rejected or lost, is forgotten at its next visit: so such an exchange leaves no trace. Clients that were
    never seen cost nothing, and those not seen for long lie on disk.
    """

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget, self._used = budget, 0
        self._versions: dict[int, set[Version]] = {}
        self._warm: OrderedDict[Place, tuple[Memory, int]] = OrderedDict()  # oldest first, with their sizes
        self._cold: dict[Place, Path] = {}
        self._folder: Path | None = None

    def read(self, client: int, version: Version | None) -> Memory | None:
        """The memory of that version; None for a client that has none yet."""
        if version is None:
            return None
        if (client, version) in self._warm:
            self._warm.move_to_end((client, version))
            return self._warm[client, version][0]
        with self._cold[client, version].open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        memory: Memory = from_buffer(memoryview(mapped))
        return memory

    def write(self, client: int, accepted: Version | None, pending: Version, memory: Memory) -> None:
        """Keep `memory` until it is known whether it was accepted."""
        for version in self._versions.get(client, set()) - {accepted}:
            self._forget((client, version))
        self._versions[client] = {pending} if accepted is None else {accepted, pending}
        self._keep((client, pending), memory)

    def restore(self, client: int, version: Version, memory: Memory) -> None:
        """Put back an accepted memory."""
        self.write(client, None, version, memory)

    def _keep(self, place: Place, memory: Memory) -> None:
        size = tensor_bytes(memory)
        self._warm[place] = (memory, size)
        self._used += size
        while self._used > self._budget:
            oldest, (cooled, size) = self._warm.popitem(last=False)
            self._used -= size
            self._cold[oldest] = self._path(oldest)
            self._cold[oldest].write_bytes(to_bytes(cooled))

    def _forget(self, place: Place) -> None:
        if place in self._warm:
            self._used -= self._warm.pop(place)[1]
        else:
            self._cold.pop(place).unlink()

    def _path(self, place: Place) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="shoal-memories-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        client, (round, leg) = place
        return self._folder / f"{client}-{round}-{leg}"
