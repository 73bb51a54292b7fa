"""The protocol of a codec: how a tree travels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from shoal.core import serialization
from shoal.core.key import Key
from shoal.core.types import Setting, Tree


@dataclass(frozen=True)
class Packet:
    """An encoded tree. It becomes bytes only where a wire asks for them; its length is known before.

    A tree in which there is nothing to tell needs no bytes, and comes back as an empty tuple.
    """

    content: Tree

    @property
    def nbytes(self) -> int:
        """The length of `bytes(packet)`."""
        return 0 if serialization.is_empty(self.content) else serialization.nbytes(self.content)

    def __bytes__(self) -> bytes:
        return b"" if serialization.is_empty(self.content) else serialization.to_bytes(self.content)

    @classmethod
    def from_bytes(cls, data: bytes) -> Packet:
        """The packet whose bytes these are."""
        return cls(serialization.from_bytes(data) if data else ())


class Codec(ABC):
    """A way to write a tree with fewer bytes. Lossy codecs touch floating tensors only."""

    remembers: ClassVar[bool] = False  # whether a client keeps something for its next upload
    transparent: ClassVar[bool] = False  # whether what is decoded is what was encoded, untouched

    @abstractmethod
    def encode(
        self,
        tree: Tree,
        *,
        setting: Setting | None = None,
        key: Key | None = None,
        reference: Tree = None,
        memory: Any = None,
    ) -> tuple[Packet, Any]:
        """The packet, and what the sender remembers for the next one."""

    @abstractmethod
    def decode(self, packet: Packet, reference: Tree = None) -> Tree:
        """The tree, as exactly as the codec can."""
