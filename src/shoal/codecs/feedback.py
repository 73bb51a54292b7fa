"""What codecs of updates have in common: they leave messages alone, and may make good what they left out.

e <- e + D,   sent = C(e),   e <- e - sent                                        (error feedback)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from shoal.codecs.leaves import each
from shoal.codecs.raw import Raw
from shoal.core.codec import Codec, Direction, Packet
from shoal.core.types import Tree

Residual = Mapping[str, Tensor]  # what earlier packets left out of each tensor, by its path in the tree


class UpdateCodec(Codec):
    """A codec of updates. Messages are sent as they are: a model without most of itself is none."""

    def way(self, direction: Direction) -> Codec:
        """See `Codec`."""
        return self if direction == "up" else Raw()


class FeedbackCodec(UpdateCodec):
    """A codec of updates that adds what it left out to the next one, unless `feedback` is false."""

    feedback: bool

    @property
    def remembers(self) -> bool:
        """See `Codec`."""
        return self.feedback

    def fed_back(
        self, function: Callable[[str, Tensor], Any], tree: Tree, memory: Residual | None
    ) -> tuple[Packet, Any]:
        """The packet of `each(function, tree)`, and the memory: what all packets so far left out."""
        if not self.feedback:
            return Packet(each(function, tree)), memory
        whole = corrected(tree, memory)
        packet = Packet(each(function, whole))
        return packet, left_out(whole, self.decode(packet))


def corrected(tree: Tree, residual: Residual | None) -> Tree:
    """The tree with what earlier packets left out added to it; a tensor of another shape starts anew."""

    def add(path: str, leaf: Tensor) -> Tensor:
        lacking = (residual or {}).get(path)
        return leaf + lacking if lacking is not None and lacking.shape == leaf.shape else leaf

    return each(add, tree) if residual else tree


def left_out(tree: Tree, decoded: Tree) -> dict[str, Tensor]:
    """What the decoded tree lacks, by path; tensors that came through whole are not listed."""
    found: dict[str, Tensor] = {}
    arrived: dict[str, Tensor] = {}
    each(arrived.__setitem__, decoded)

    def compare(path: str, leaf: Tensor) -> None:
        lacking = leaf - arrived[path]
        if bool(lacking.any()):
            found[path] = lacking

    each(compare, tree)
    return found
