"""The packets of a message to clients, and their lengths in bytes."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.core.codec import Codec, Packet
from shoal.core.key import Key
from shoal.core.types import Cohort, PerClient, Tree, message_for


class Outbox:
    """The packets of one message. A message that clients share is encoded once for each setting."""

    def __init__(self, codec: Codec, cohort: Cohort, message: Tree, key: Key) -> None:
        self._codec, self._cohort, self._message, self._key = (
            codec.for_direction("down"),
            cohort,
            message,
            key,
        )
        self._shared = not any(isinstance(field, PerClient) for field in message)
        self._made: dict[str, tuple[Packet, Tree, int]] = {}

    def __getitem__(self, position: int) -> tuple[Packet, Tree, int]:
        """The packet for the client at `position`, the message as that client decodes it, and its length."""
        setting = self._cohort.setting(position) if self._cohort.settings else {}
        name = repr(sorted(setting.items())) if setting else ""
        if self._shared and name in self._made:
            return self._made[name]
        key = self._key.fold("down") if self._shared else self._key.fold("down", self._cohort.ids[position])
        packet, _ = self._codec.encode(message_for(self._message, position), setting=setting, key=key)
        made = (packet, self._codec.decode(packet), packet.nbytes)
        if self._shared:
            self._made[name] = made
        return made

    def several(self, positions: Sequence[int]) -> list[tuple[Packet, Tree, int]]:
        """The entries of several clients; clients that get the same message share one entry."""
        if self._shared and not self._cohort.settings:
            return [self[positions[0]]] * len(positions)
        return [self[position] for position in positions]
