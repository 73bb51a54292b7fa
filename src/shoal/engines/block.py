"""Blocks of clients at once.

Where the compiled kernels train the model, a block is one call of the method's own `client_update` on
stacked data, to the same bits as one client after another. Elsewhere `vmap` maps it over the clients, to
the same numbers within rounding. A block holds consecutive members of the cohort with equal settings, and
its size depends on the model alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from shoal.core.codec import Packet
from shoal.core.engine import TRAINING, ClientSide, Delivery, Memory, Outbox, Work, stage
from shoal.core.key import Key
from shoal.core.tree import row, stack, tree_map
from shoal.core.types import Cohort, Context, PerClient, Reply, Tree
from shoal.engines.lanes import mapped_update
from shoal.engines.memory import MemoryStore
from shoal.engines.serial import Serial

LARGEST_BLOCK = 256  # clients
LARGEST_STACK = 2**24  # parameters of all clients of a block together


class Blocks:
    """Visits clients block by block."""

    def __init__(self, side: ClientSide, store: MemoryStore, threads: int) -> None:
        self._side, self._store, self._threads = side, store, threads
        self._serial = Serial(side, store)
        self._fused = side.method.broadcasts(side.task)
        self._mapped = side.method.maps and side.method.batching is not None
        parameters = sum(value.numel() for value in side.task.init(side.key).params.values())
        self._size = max(1, min(LARGEST_BLOCK, LARGEST_STACK // parameters))

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""
        alone = work.verb not in TRAINING or self._side.privacy is not None
        if alone or not (self._fused or self._mapped):
            yield from self._serial.exchange(work, cohort, message, key)
            return
        outbox = Outbox(self._side.codec, cohort, message, key)
        for positions in blocks(cohort, self._size):
            with stage(work.verb, cohort.ids[positions[0]], work.round):
                yield self._deliver(work, cohort.take(positions), outbox.several(positions), key)

    def close(self) -> None:
        """Nothing to end."""

    def _deliver(
        self, work: Work, cohort: Cohort, mail: Sequence[tuple[Packet, Tree, int]], key: Key
    ) -> Delivery:
        started = time.perf_counter()
        side, sent = self._side, [message for _, message, _ in mail]
        context = Context(work.round, work.leg, cohort.setting(0), key)
        memories = [Memory((), None)] * len(cohort.ids)
        if side.remembers:
            fresh = side.fresh()
            memories = [self._store.read(c, work.accepted.get(c)) or fresh for c in cohort.ids]
        lying = work.verb == "train"  # the honest are asked for updates
        if self._fused:
            kept, reply = self._fused_update(cohort, sent, context, poisoned=lying)
        else:
            held = [memory.method for memory in memories]
            kept, reply = mapped_update(side, cohort, held, _stacked(sent), context, poisoned=lying)
        up, coded = 0, [memory.codec for memory in memories]
        if not lying:
            reply = side.method.upload(reply, context.setting)
            reply, up, coded = self._encoded(cohort, reply, memories, context)
        if side.remembers:
            for i, client in enumerate(cohort.ids):
                memory = Memory(tree_map(torch.clone, row(kept, i)), coded[i])
                self._store.write(client, work.accepted.get(client), (work.round, work.leg), memory)
        down = sum(length for _, _, length in mail)
        seconds = time.perf_counter() - started
        return Delivery(cohort.ids, _shared(sent), reply, "", down, up, seconds, stacked=True)

    def _fused_update(
        self, cohort: Cohort, sent: Sequence[Tree], context: Context, *, poisoned: bool
    ) -> tuple[Tree, Reply]:
        """One call for the whole block."""
        side = self._side
        assert side.method.batching is not None
        words = context.key.fold_many("client", np.array(cohort.ids), "batches")
        data = side.holdings.block(cohort.ids, side.method.batching, words, self._threads)
        data = side.poisoned(data, cohort.ids) if poisoned else data
        message = sent[0] if _alike(sent) else _stacked(sent)
        return side.method.client_update(side.task, (), message, data, context)

    def _encoded(
        self, cohort: Cohort, reply: Reply, memories: Sequence[Memory], context: Context
    ) -> tuple[Reply, int, list[Tree]]:
        """The replies as the server decodes them, their length in all, and what the codec remembers."""
        codec, count = self._side.codec, len(cohort.ids)
        if codec.transparent:
            return reply, count * Packet(row(reply, 0)).nbytes, [memory.codec for memory in memories]
        read, up, coded = [], 0, []
        for i, client in enumerate(cohort.ids):
            single = row(reply, i)
            key = context.key.fold("client", client, "codec")
            packet, memory = codec.encode(
                single.payload, setting=context.setting, key=key, memory=memories[i].codec
            )
            answer = Packet(single._replace(payload=packet.content))
            read.append(self._side.read("update", answer))
            up += answer.nbytes
            coded.append(memory)
        return stack(read), up, coded


def blocks(cohort: Cohort, size: int) -> Iterator[list[int]]:
    """Positions of consecutive clients with equal settings, at most `size` of them."""
    if not cohort.settings:
        everyone = list(range(len(cohort.ids)))
        yield from (everyone[first : first + size] for first in range(0, len(everyone), size))
        return
    block: list[int] = []
    for position in range(len(cohort.ids)):
        if block and (len(block) == size or cohort.setting(position) != cohort.setting(block[0])):
            yield block
            block = []
        block.append(position)
    if block:
        yield block


def _alike(sent: Sequence[Tree]) -> bool:
    return all(message is sent[0] for message in sent)


def _stacked(sent: Sequence[Tree]) -> Tree:
    """The block's messages with a leading client axis; what all share is only spread out, not copied."""
    if _alike(sent):
        return tree_map(lambda leaf: leaf.expand(len(sent), *leaf.shape), sent[0])
    return stack(sent)


def _shared(sent: Sequence[Tree]) -> Tree:
    """The block's messages as one, with fields that differ by client as `PerClient`."""
    if _alike(sent):
        return sent[0]
    columns = zip(*sent, strict=True)
    return type(sent[0])(*(c[0] if all(f is c[0] for f in c) else PerClient(c) for c in columns))
