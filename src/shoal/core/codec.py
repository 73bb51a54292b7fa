"""The protocol of a codec: how a tree is encoded before it is sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

from shoal.core import serialization
from shoal.core.key import Key
from shoal.core.types import Setting, Tree

Direction = Literal["up", "down"]  # replies go up, messages down


@dataclass(frozen=True)
class Packet:
    """An encoded tree. It is serialized only when it is sent over a network; its length is known before that.

    An empty tree takes no bytes and is decoded as an empty tuple.
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
        """The inverse of `bytes(packet)`."""
        return cls(serialization.from_bytes(data) if data else ())


class Codec(ABC):
    """A way to encode a tree in fewer bytes. Lossy codecs change floating-point tensors only."""

    @property
    def remembers(self) -> bool:
        """Whether a client keeps a memory for its next upload."""
        return False

    @property
    def transparent(self) -> bool:
        """Whether decoding returns exactly what was encoded, for every setting."""
        return False

    def for_direction(self, direction: Direction) -> Codec:
        """The codec for replies or for messages: itself, unless it treats the two differently."""
        return self

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
        """The packet, and the sender's memory for its next packet."""

    @abstractmethod
    def decode(self, packet: Packet, reference: Tree = None) -> Tree:
        """The decoded tree; a lossy codec gives an approximation."""
