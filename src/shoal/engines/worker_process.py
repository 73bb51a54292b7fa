"""The code that runs in a worker process."""

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
from shoal.engines.os_settings import die_with_parent, keep_freed_memory


class Slot(NamedTuple):
    """Shared memory for one client: its input, and its answer."""

    inward: mmap.mmap
    outward: mmap.mmap


class ClientJob(NamedTuple):
    """One client's job, as it is sent through the pipe."""

    slot: int
    shared: int  # the number of the shared message to use; 0: the message is in the slot, with the memory
    client: int
    verb: Verb
    round: int
    leg: int
    setting: dict[str, Any]
    key: Key
    data: bytes | None  # message and memory, if they do not fit into the slot


class ClientResult(NamedTuple):
    """The result of a job, as it is sent back through the pipe."""

    slot: int
    length: int
    data: bytes | None = None  # the answer, if it does not fit into the slot
    reason: str = ""  # why the client has no answer
    error: str = ""
    is_spec_error: bool = False  # whether the error is a `SpecError`


def serve(
    side: ClientSide,
    buffer: mmap.mmap,
    slots: Sequence[Slot],
    pipe: Connection,
    inherited: Sequence[Connection],
) -> None:
    """Run jobs until the pipe is closed."""
    for connection in inherited:  # the parent's pipe ends: left open, they would hide that it has exited
        connection.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent
    die_with_parent()
    torch.set_num_threads(1)
    keep_freed_memory()
    number, shared = 0, None
    with contextlib.suppress(EOFError, OSError):
        while True:
            job: ClientJob = pipe.recv()
            if job.shared and job.shared != number:
                number, shared = job.shared, from_buffer(memoryview(buffer))
            pipe.send(_do(side, shared, slots[job.slot], job))
    os._exit(0)


def _do(side: ClientSide, shared: Tree, slot: Slot, job: ClientJob) -> ClientResult:
    try:
        message, memory = from_buffer(memoryview(slot.inward if job.data is None else bytearray(job.data)))
        context = Context(job.round, job.leg, job.setting, job.key)
        packet = Packet(shared if job.shared else message)
        visit = side.visit(job.verb, job.client, memory or side.fresh, packet, context)
        if visit.answer is None:
            return ClientResult(job.slot, 0, reason=visit.reason)
        kept = visit.memory if side.remembers and job.verb in TRAINING else None
        content = (kept, visit.answer.content)
        length = nbytes(content)
        if length > len(slot.outward):
            return ClientResult(job.slot, length, to_bytes(content))
        into_buffer(content, memoryview(slot.outward))
        return ClientResult(job.slot, length)
    except SpecError as error:
        return ClientResult(job.slot, 0, error=str(error), is_spec_error=True)
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        return ClientResult(job.slot, 0, error=f"{error}\n\nIn the worker process:\n{trace}")
