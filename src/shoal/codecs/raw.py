"""Raw: every tensor unchanged, in its own dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.core.codec import Codec, Packet
from shoal.core.key import Key
from shoal.core.types import Setting, Tree


@dataclass(frozen=True)
class Raw(Codec):
    """Sends everything unchanged; lossless."""

    @property
    def transparent(self) -> bool:
        """See `Codec`."""
        return True

    def encode(
        self,
        tree: Tree,
        *,
        setting: Setting | None = None,
        key: Key | None = None,
        reference: Tree = None,
        memory: Any = None,
    ) -> tuple[Packet, Any]:
        """See `Codec`."""
        return Packet(tree), memory

    def decode(self, packet: Packet, reference: Tree = None) -> Tree:
        """See `Codec`."""
        return packet.content
