"""The code that runs in an actor of a Ray cluster."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from threadpoolctl import threadpool_limits

from shoal.core.client import ClientSide
from shoal.core.engine import TRAINING, Delivery, Memory, Work
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.types import Cohort, Version
from shoal.engines.block import Blocks, trains_in_blocks
from shoal.engines.client_memory import MemoryStore
from shoal.engines.os_settings import keep_freed_memory
from shoal.engines.serial import Serial
from shoal.engines.tensor_pickle import Packed, pack, unpack


class ActorJob(NamedTuple):
    """Some clients of an exchange, without their message."""

    work: Work
    cohort: Cohort
    key: Key
    memories: Mapping[int, tuple[Version, Memory]]  # of clients whose memory the actor does not have


class ActorResult(NamedTuple):
    """The replies of these clients."""

    deliveries: list[Delivery]  # without the messages, which the sender knows
    memories: dict[int, Memory]  # the clients' new memories


class ClientActor:
    """Holds the clients' data and the memories of those that it has run, and runs clients."""

    def __init__(self, side: Packed) -> None:
        torch.set_num_threads(1)
        threadpool_limits(1, "blas")  # as in the driver process
        keep_freed_memory()
        self._side: ClientSide = unpack(side, copied=False)
        self._store = MemoryStore()
        in_blocks = trains_in_blocks(self._side)
        self._way = Blocks(self._side, self._store, 1) if in_blocks else Serial(self._side, self._store)

    def ready(self) -> bool:
        """True, as soon as it can run clients."""
        return True

    def exchange(self, job: Packed, message: Packed) -> tuple[Packed | None, str, bool]:
        """The packed `ActorResult`; or None, an error, and whether that is a `SpecError`."""
        try:
            return pack(self._exchanged(unpack(job), unpack(message))), "", False
        except SpecError as error:
            return None, str(error), True
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
            return None, f"{error}\n\nIn the actor:\n{trace}", False

    def _exchanged(self, job: ActorJob, message: Any) -> ActorResult:
        for client, (version, memory) in job.memories.items():
            self._store.restore(client, version, memory)
        found = self._way.exchange(job.work, job.cohort, message, job.key)
        deliveries = [delivery._replace(sent=()) for delivery in found]
        kept: dict[int, Memory] = {}
        if self._side.remembers and job.work.verb in TRAINING:
            for delivery in deliveries:
                if delivery.reply is not None:
                    for client in delivery.clients:
                        new = self._store.read(client, job.work.version)
                        assert new is not None
                        kept[client] = new
        return ActorResult(deliveries, kept)
