"""Low rank: the matrices of an update as products of thin matrices.

    D -> U_k diag(s_k) V_k^T, the nearest matrix of rank k (Eckart and Young)     -> `parts.factors.factored`

It costs k (rows + columns + 1) numbers; if the dense matrix takes no more, it is sent unchanged. Only updates
are of low rank: messages, vectors and buffers are sent unchanged. A large matrix of rank k or less, as after
training on k samples, is its own nearest matrix: it is sent as a product that contains as many of its rows as
its rank, without a decomposition                                             -> `parts.factors.spanned`
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shoal.codecs.feedback import UpdateCodec
from shoal.core.codec import Packet
from shoal.core.errors import SpecError
from shoal.core.flat import Flat
from shoal.core.key import Key
from shoal.core.types import Setting, Tree, Weights
from shoal.parts.factors import Factors, as_matrix, factored, is_matrix, rank_of, spanned

LARGEST = 2**28  # numbers in a tensor


class Cut(NamedTuple):
    """A low-rank matrix, and the shape of the tensor that it represents."""

    factors: Factors
    shape: tuple[int, ...]

    def whole(self) -> Tensor:
        """The tensor. Raises `ValueError` for invalid factors, before they are multiplied."""
        u, s, v = self.factors
        fit = u.dim() == v.dim() == 2 and s.dim() == 1 and u.shape[1] == v.shape[1] == len(s)
        size = math.prod(self.shape)
        if not fit or u.shape[0] * v.shape[0] != size or size > LARGEST:
            raise ValueError(f"the factors {tuple(u.shape)}, {tuple(v.shape)} make no tensor {self.shape}")
        return self.factors.dense().reshape(self.shape)


@dataclass(frozen=True)
class LowRank(UpdateCodec):
    """Truncates matrices of an update to a share of their full rank by SVD, or to the setting `rank`."""

    rank: float = 0.25

    def __post_init__(self) -> None:
        if not 0 < self.rank <= 1:
            raise SpecError(f"rank must be in (0, 1], got {self.rank:g}; it is a share of the largest rank")

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
        if "update" not in getattr(tree, "_fields", ()):
            return Packet(tree), memory
        share = (setting or {}).get("rank", self.rank)
        params: dict[str, Any] = {name: _cut(value, share) for name, value in tree.update.params.items()}
        return Packet(tree._replace(update=tree.update._replace(params=params))), memory

    def decode(self, packet: Packet, reference: Tree = None) -> Tree:
        """See `Codec`."""
        content = packet.content
        if "update" not in getattr(content, "_fields", ()):
            return content
        params = {name: _whole(value) for name, value in content.update.params.items()}
        return content._replace(update=content.update._replace(params=params))


def _cut(value: Any, share: float) -> Any:
    if not isinstance(value, Tensor) or not is_matrix(value) or share >= 1:  # a chain may have encoded it
        return value
    matrix = as_matrix(value)
    rank = rank_of(share, min(matrix.shape))
    if rank == min(matrix.shape):
        return value
    if rank * (sum(matrix.shape) + 1) >= matrix.numel():
        return value
    return Cut(spanned(matrix, rank) or factored(matrix, rank), tuple(value.shape))


def _whole(value: Any) -> Any:
    return value.whole() if isinstance(value, Cut) else value


def restored(payload: Any, sent: Weights) -> Any:
    """The payload with the matrices of its update restored, in the shapes of the model sent.

    Raises `ValueError` for factors that do not fit the model, before they are multiplied.
    """
    params, like = payload.update.params, sent.params
    for name, value in params.items():
        if isinstance(value, Cut):
            _check(name, value, like)
    together = _in_one_vector(params, like)
    if together is None:
        return LowRank().decode(Packet(payload))
    return payload._replace(update=payload.update._replace(params=together))


def _in_one_vector(params: Mapping[str, Any], like: Mapping[str, Tensor]) -> Flat | None:
    """The update in one vector, like the model, so that all tensors are checked and added up at once.

    None if a tensor does not fit; the gate refuses such an update.
    """
    if not isinstance(like, Flat) or params.keys() != like.keys():
        return None
    tensors = ((value, like[name]) for name, value in params.items() if not isinstance(value, Cut))
    if not all(isinstance(value, Tensor) and _alike(value, one) for value, one in tensors):
        return None
    if any(value.factors.u.dtype != like.vector.dtype for value in params.values() if isinstance(value, Cut)):
        return None
    whole = like.layout.tree(torch.empty_like(like.vector))
    for name, room in whole.items():
        value = params[name]
        if isinstance(value, Cut):
            value.factors.dense(as_matrix(room))
        else:
            room.copy_(value)
    return whole


def _alike(value: Tensor, one: Tensor) -> bool:
    return (value.shape, value.dtype, value.layout) == (one.shape, one.dtype, one.layout)


def _check(name: str, cut: Cut, sent: Mapping[str, Tensor]) -> None:
    like, (u, s, v) = sent[name], cut.factors
    rows, columns = as_matrix(like).shape
    rank = s.shape[0] if s.dim() == 1 else -1
    if tuple(cut.shape) != tuple(like.shape) or (tuple(u.shape), tuple(v.shape)) != (
        (rows, rank),
        (columns, rank),
    ):
        raise ValueError(f"the factors of {name} do not fit its shape {tuple(like.shape)}")
