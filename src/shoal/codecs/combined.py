"""Codecs made of other codecs: several in sequence, or one per direction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shoal.codecs.feedback import corrected, left_out
from shoal.codecs.raw import Raw
from shoal.core.codec import Codec, Direction, Packet
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.types import Setting, Tree


@dataclass(frozen=True)
class Chain(Codec):
    """Codecs in sequence: each encodes the floating-point tensors that the previous one has left.

    If one of them has error feedback, so has the chain: it feeds back the error of all of them together.
    """

    chain: tuple[Codec, ...]

    def __post_init__(self) -> None:
        kinds = [type(codec) for codec in self.chain if codec != Raw()]
        for kind in kinds:
            if kinds.count(kind) > 1:
                raise SpecError(f"chain holds {kind.__name__} twice; once is enough")
        if not self.chain:
            raise SpecError(
                'chain must hold at least one codec; to send everything as it is, use name = "raw"'
            )

    @property
    def remembers(self) -> bool:
        """See `Codec`."""
        return any(codec.remembers for codec in self.chain)

    @property
    def transparent(self) -> bool:
        """See `Codec`."""
        return all(codec.transparent for codec in self.chain)

    def for_direction(self, direction: Direction) -> Codec:
        """See `Codec`."""
        return Chain(tuple(codec.for_direction(direction) for codec in self.chain))

    def encode(
        self,
        tree: Tree,
        *,
        setting: Setting | None = None,
        key: Key | None = None,
        reference: Tree = None,
        memory: Any = None,
    ) -> tuple[Packet, Any]:
        """See `Codec`. Only the first codec gets the reference, since the others do not encode a model."""
        whole = corrected(tree, memory) if self.remembers else tree
        packet = Packet(whole)
        for i, codec in enumerate(self.chain):
            own, known = key.fold("chain", i) if key else None, None if i else reference
            packet, _ = codec.encode(packet.content, setting=setting, key=own, reference=known)
        if not self.remembers:
            return packet, memory
        return packet, left_out(whole, self.decode(packet, reference))

    def decode(self, packet: Packet, reference: Tree = None) -> Tree:
        """See `Codec`."""
        for i, codec in reversed(list(enumerate(self.chain))):
            packet = Packet(codec.decode(packet, None if i else reference))
        return packet.content


@dataclass(frozen=True)
class EachWay(Codec):
    """One codec for replies and another one for messages."""

    up: Codec = field(default_factory=Raw)
    down: Codec = field(default_factory=Raw)

    def __post_init__(self) -> None:
        if self.down.for_direction("down") != self.down:
            raise SpecError(
                f"down: {type(self.down).__name__} is for updates, and messages hold models; "
                "use it in [codec.up]"
            )

    @property
    def remembers(self) -> bool:
        """See `Codec`."""
        return self.up.remembers

    @property
    def transparent(self) -> bool:
        """See `Codec`."""
        return self.up.transparent and self.down.transparent

    def for_direction(self, direction: Direction) -> Codec:
        """See `Codec`."""
        return self.up.for_direction("up") if direction == "up" else self.down

    def encode(
        self,
        tree: Tree,
        *,
        setting: Setting | None = None,
        key: Key | None = None,
        reference: Tree = None,
        memory: Any = None,
    ) -> tuple[Packet, Any]:
        """See `Codec`. Without a direction, the codec for replies is used."""
        return self.for_direction("up").encode(
            tree, setting=setting, key=key, reference=reference, memory=memory
        )

    def decode(self, packet: Packet, reference: Tree = None) -> Tree:
        """See `Codec`."""
        return self.for_direction("up").decode(packet, reference)
