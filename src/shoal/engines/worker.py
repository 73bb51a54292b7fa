"""What runs in a worker process."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

from shoal.core.client import ClientSide
from shoal.core.codec import Packet
from shoal.core.engine import TRAINING, Verb
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.serialization import from_buffer, into_buffer, nbytes, to_bytes
from shoal.core.types import Context, Tree
from shoal.engines.process import die_with_parent, keep_freed_memory


class Slot(NamedTuple):
    """Shared memory for one client: what it is given, and what it answers."""

    inward: mmap.mmap
    outward: mmap.mmap


class Errand(NamedTuple):
    """What goes through the pipe for one client."""

    slot: int
    letter: int  # the number of the message in the box; 0: it lies with the memory
    client: int
    verb: Verb
    round: int
    leg: int
    setting: dict[str, Any]
    key: Key
    data: bytes | None  # message and memory, where they do not fit into the slot


class Returned(NamedTuple):
    """What comes back through the pipe."""

    slot: int
    length: int
    data: bytes | None = None  # the answer, where it does not fit into the slot
    reason: str = ""  # why there is no answer
    error: str = ""
    curable: bool = False  # by the user


def serve(
    side: ClientSide, box: mmap.mmap, slots: Sequence[Slot], pipe: Connection, inherited: Sequence[Connection]
) -> None:
    """Work until the pipe closes."""
    for connection in inherited:  # the parent's ends: while they are open here, nobody sees the parent die
        connection.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    die_with_parent()
    torch.set_num_threads(1)
    keep_freed_memory()
    number, letter = 0, None
    with contextlib.suppress(EOFError, OSError):
        while True:
            job: Errand = pipe.recv()
            if job.letter and job.letter != number:
                number, letter = job.letter, from_buffer(memoryview(box))
            pipe.send(_do(side, letter, slots[job.slot], job))
    os._exit(0)


def _do(side: ClientSide, letter: Tree, slot: Slot, job: Errand) -> Returned:
    try:
        message, memory = from_buffer(memoryview(slot.inward if job.data is None else bytearray(job.data)))
        context = Context(job.round, job.leg, job.setting, job.key)
        packet = Packet(letter if job.letter else message)
        visit = side.visit(job.verb, job.client, memory or side.fresh, packet, context)
        if visit.answer is None:
            return Returned(job.slot, 0, reason=visit.reason)
        kept = visit.memory if side.remembers and job.verb in TRAINING else None
        parcel = (kept, visit.answer.content)
        length = nbytes(parcel)
        if length > len(slot.outward):
            return Returned(job.slot, length, to_bytes(parcel))
        into_buffer(parcel, memoryview(slot.outward))
        return Returned(job.slot, length)
    except SpecError as error:
        return Returned(job.slot, 0, error=str(error), curable=True)
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        return Returned(job.slot, 0, error=f"{error}\n\nIn the worker process:\n{trace}")
