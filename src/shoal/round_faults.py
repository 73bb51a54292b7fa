"""Faults of a round: clients that drop out, and replies that are late or arrive damaged, drawn from keys.

A fault costs a reply and nothing else: the client's memory stays at its last accepted version. The same
clients fail on every engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from shoal.core.engine import Delivery
from shoal.core.errors import PacketError
from shoal.core.key import Key
from shoal.core.serialization import from_bytes, to_bytes
from shoal.core.types import Reply

DropoutStage = Literal["any", "download", "training", "upload"]

DROPOUTS = {  # why there is no reply, and whether the message and the reply were sent
    "download": ("it dropped out before the message had arrived", False, False),
    "training": ("it dropped out while it worked", True, False),
    "upload": ("it dropped out while it replied", True, True),
}
LATE = "its reply came too late"


class FaultRates(NamedTuple):
    """How probable faults are, for each client in each exchange."""

    dropout: float = 0.0
    stage: DropoutStage = "any"  # how far a client gets before it drops out
    late: float = 0.0
    corrupt: float = 0.0

    @property
    def active(self) -> bool:
        """Whether any fault can occur."""
        return self.dropout + self.late + self.corrupt > 0

    def inject(self, deliveries: Iterator[Delivery], key: Key) -> Iterator[Delivery]:
        """The deliveries of an exchange, some of them without a usable reply."""
        if not self.active:
            yield from deliveries
            return
        for delivery in deliveries:
            draws = [key.fold("client", client).numpy() for client in delivery.clients]
            faults = [self._drawn(rng) for rng in draws]
            if not any(faults):
                yield delivery
                continue
            for single, fault, rng in zip(delivery.singles(), faults, draws, strict=True):
                yield _struck(single, fault, rng)

    def _drawn(self, rng: np.random.Generator) -> str:
        """A kind of dropout, "late", "corrupt", or "" for none."""
        dropout, late, corrupt = rng.random(3)
        if dropout < self.dropout:
            return str(rng.choice(list(DROPOUTS))) if self.stage == "any" else self.stage
        return "late" if late < self.late else "corrupt" if corrupt < self.corrupt else ""


NO_FAULTS = FaultRates()


def _struck(single: Delivery, fault: str, rng: np.random.Generator) -> Delivery:
    if not fault or single.reply is None or single.reason:
        return single
    if fault in DROPOUTS:
        reason, down, up = DROPOUTS[fault]
        return single._replace(
            reply=None, reason=reason, bytes_down=down * single.bytes_down, bytes_up=up * single.bytes_up
        )
    if fault == "late":
        return single._replace(reason=LATE)
    try:
        reply = from_bytes(damaged(to_bytes(single.reply), rng))
    except PacketError as error:
        return single._replace(reply=None, reason=f"its reply arrived damaged: {error}")
    if not isinstance(reply, Reply):
        return single._replace(reply=None, reason="its reply arrived damaged: it is no reply")
    return single._replace(reply=reply)


def damaged(packet: bytes, rng: np.random.Generator) -> bytes:
    """A packet that is cut short, has a flipped bit in its header, or a run of one bits in its numbers."""
    kind, header = int(rng.integers(3)), 4 + int.from_bytes(packet[:4], "little")
    changed = bytearray(packet)
    if kind == 0:
        return bytes(changed[: int(rng.integers(len(changed)))])
    if kind == 1 or header == len(changed):
        changed[int(rng.integers(4, header))] ^= 1 << int(rng.integers(8))
    else:
        begin = int(rng.integers(header, len(changed))) // 8 * 8
        end = min(begin + 64, len(changed))
        changed[begin:end] = b"\xff" * (end - begin)
    return bytes(changed)
