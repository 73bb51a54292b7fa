"""The common part of codecs for updates: messages are left unchanged, and error feedback is optional.

e <- e + D,   sent = C(e),   e <- e - sent                                        (error feedback)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from shoal.codecs.leaves import map_tensors
from shoal.codecs.raw import Raw
from shoal.core.codec import Codec, Direction, Packet
from shoal.core.types import Tree

Residual = Mapping[str, Tensor]  # the error of earlier packets in each tensor, by its path in the tree


class UpdateCodec(Codec):
    """A codec for updates. Messages are sent unchanged, since a model cannot be sparsified like an update."""

    def for_direction(self, direction: Direction) -> Codec:
        """See `Codec`."""
        return self if direction == "up" else Raw()


class FeedbackCodec(UpdateCodec):
    """A codec that adds the error of an update to the next one, unless `feedback` is false."""

    feedback: bool

    @property
    def remembers(self) -> bool:
        """See `Codec`."""
        return self.feedback

    def fed_back(
        self, function: Callable[[str, Tensor], Any], tree: Tree, memory: Residual | None
    ) -> tuple[Packet, Any]:
        """The packet of `map_tensors(function, tree)`, and the memory: the accumulated error."""
        if not self.feedback:
            return Packet(map_tensors(function, tree)), memory
        whole = corrected(tree, memory)
        packet = Packet(map_tensors(function, whole))
        return packet, left_out(whole, self.decode(packet))


def corrected(tree: Tree, residual: Residual | None) -> Tree:
    """The tree plus the residual of earlier packets; a tensor whose shape has changed starts without one."""

    def add(path: str, leaf: Tensor) -> Tensor:
        lacking = (residual or {}).get(path)
        return leaf + lacking if lacking is not None and lacking.shape == leaf.shape else leaf

    return map_tensors(add, tree) if residual else tree


def left_out(tree: Tree, decoded: Tree) -> dict[str, Tensor]:
    """The error of the decoded tree, by path; tensors without an error are not listed."""
    found: dict[str, Tensor] = {}
    arrived: dict[str, Tensor] = {}
    map_tensors(arrived.__setitem__, decoded)

    def compare(path: str, leaf: Tensor) -> None:
        lacking = leaf - arrived[path]
        if bool(lacking.any()):
            found[path] = lacking

    map_tensors(compare, tree)
    return found
