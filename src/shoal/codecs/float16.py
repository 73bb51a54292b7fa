"""Float16: floating-point tensors in half precision, two bytes per value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shoal.core.codec import Codec, Packet
from shoal.core.key import Key
from shoal.core.tree import tree_map
from shoal.core.types import Setting, Tree

_LARGEST = torch.finfo(torch.float16).max


class Half(NamedTuple):
    """A tensor in half precision, and its original dtype."""

    values: Tensor
    dtype: str


@dataclass(frozen=True)
class Float16(Codec):
    """Rounds floating-point tensors to half precision: relative error up to 2^-11, near zero 2^-25 absolute.

    Finite values outside the range of half precision become +-65,504.
    """

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
        return Packet(tree_map(_shorten, tree)), memory

    def decode(self, packet: Packet, reference: Tree = None) -> Tree:
        """See `Codec`."""
        return tree_map(_lengthen, packet.content, is_leaf=_is_half)


def _shorten(leaf: Any) -> Any:
    if not (isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.element_size() > 2):
        return leaf
    short = torch.where(leaf.isfinite(), leaf.clamp(-_LARGEST, _LARGEST), leaf).to(torch.float16)
    return Half(short, str(leaf.dtype).removeprefix("torch."))


def _lengthen(leaf: Any) -> Any:
    return leaf.values.to(getattr(torch, leaf.dtype)) if _is_half(leaf) else leaf


def _is_half(node: Any) -> bool:
    return isinstance(node, Half)
