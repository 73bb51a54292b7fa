"""FedPAQ: the quantised difference between a client's model and the model that it received.

A. Reisizadeh, A. Mokhtari, H. Hassani, A. Jadbabaie, R. Pedarsani: FedPAQ: A communication-efficient
federated learning method with periodic averaging and quantization. AISTATS 2020. The server computes

    w + (1 / r) sum_i Q(w_i - w),   Q as in QSGD

In Shoal, clients reply with differences anyway. If a model itself is encoded, `reference` is the model that
the receiver already has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from shoal.codecs.feedback import UpdateCodec
from shoal.codecs.leaves import bits_of, map_tensors
from shoal.codecs.qsgd import LEVEL_BITS, Qsgd
from shoal.codecs.uniform import WHOLE
from shoal.core.codec import Packet
from shoal.core.key import Key
from shoal.core.types import Setting, Tree


class Difference(NamedTuple):
    """A tree from which the reference has been subtracted."""

    tree: Tree


@dataclass(frozen=True)
class FedPaq(UpdateCodec):
    """QSGD of the difference from the model that the receiver has; messages are sent unchanged."""

    bits: int = 4
    bucket: int = 512

    def __post_init__(self) -> None:
        self._quantizer  # noqa: B018  # it checks the fields

    @property
    def _quantizer(self) -> Qsgd:
        return Qsgd(self.bits, self.bucket)

    def encode(
        self,
        tree: Tree,
        *,
        setting: Setting | None = None,
        key: Key | None = None,
        reference: Tree = None,
        memory: Any = None,
    ) -> tuple[Packet, Any]:
        """See `Codec`. Without a reference, the tree holds differences already."""
        if reference is not None and bits_of(self.bits, setting, LEVEL_BITS) != WHOLE:
            tree = Difference(_combined(tree, reference, -1))
        return self._quantizer.encode(tree, setting=setting, key=key, memory=memory)

    def decode(self, packet: Packet, reference: Tree = None) -> Tree:
        """See `Codec`."""
        decoded = self._quantizer.decode(packet)
        return _combined(decoded.tree, reference, 1) if isinstance(decoded, Difference) else decoded


def _combined(tree: Tree, reference: Tree, sign: int) -> Tree:
    """The sum of two trees, or their difference."""
    other: dict[str, Tensor] = {}
    map_tensors(other.__setitem__, reference)
    return map_tensors(lambda path, leaf: leaf + sign * other[path], tree)
