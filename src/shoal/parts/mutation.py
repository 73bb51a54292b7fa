"""Mutations: a different model around the global one for each client.

The last step of the global model, delta, determines their direction and scale. Model j is changed in layer
L by

    mutation = along[j, L] * delta.L + across[j, L] * |delta.L| * g

with g a random unit vector orthogonal to delta.L. A mutation is thus two numbers per layer, and operations on
it, such as the projection onto a half-space of delta, work on these numbers; tensors are computed only when a
client's model is needed. Models come in pairs with opposite mutations. In a cohort of odd size one model is
not mutated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Literal, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor

from shoal.core.flat import in_one_vector, vectors
from shoal.core.key import Key
from shoal.core.types import Weights
from shoal.kernels import model_steps
from shoal.kernels.mutation import extend_parts

Kind = Literal["fedmut", "gaussian", "mixed"]
Granularity = Literal["tensor", "module"]
Params = Mapping[str, Tensor]
Layers = tuple[tuple[str, ...], ...]  # the names of the tensors that are mutated together


def layers(params: Params, granularity: Granularity) -> Layers:
    """Each tensor on its own, or the tensors of a module together."""
    if granularity == "tensor":
        return tuple((name,) for name in params)
    return tuple(tuple(names) for _, names in groupby(params, lambda name: name.rpartition(".")[0]))


class Mutations(NamedTuple):
    """The mutations of one round, [clients, layers] each."""

    along: np.ndarray  # float64
    across: np.ndarray  # float64
    pair: np.ndarray  # int64: the pair that determines g; both members of a pair have the same g
    active: np.ndarray  # bool: whether the projection changed it


@dataclass(frozen=True)
class Mutation:
    """How mutations are drawn, before any projection."""

    kind: Kind
    alpha: float
    sigma: float

    def draw(self, clients: int, sizes: Sequence[int], backward: float, key: Key) -> Mutations:
        """Draw mutations: in each layer, +1 for a random half of the clients, `backward` for the others."""
        paired, shape = clients // 2 * 2, (clients, len(sizes))
        member = np.full(shape, -1)
        members = np.tile(np.arange(paired), (len(sizes), 1))
        order = key.fold("order").numpy().permutation(clients)[:paired]  # a random client stays unpaired
        member[order] = key.fold("signs").numpy().permuted(members, axis=1).T
        pair, sign = member // 2, np.where(member % 2 == 0, 1.0, -1.0) * (member >= 0)
        size = self.alpha * np.where(sign < 0, backward, sign)
        along, across = size, np.zeros(shape)
        if self.kind == "gaussian":
            cosine = _cosines(max(clients // 2, 1), sizes, key.fold("angles"))[pair, np.arange(len(sizes))]
            along, across = size * cosine, size * np.sqrt(1 - cosine**2)
        elif self.kind == "mixed":
            across = self.alpha * self.sigma * sign * (np.array(sizes) > 1)
        return Mutations(along, across, pair, np.zeros(shape, bool))

    def lean(self, sizes: Sequence[int]) -> float:
        """The expected component of a forward mutation along delta, averaged over layers."""
        if self.kind != "gaussian":
            return 1.0
        gammas = [math.lgamma(n / 2) - math.lgamma((n + 1) / 2) for n in sizes]
        return sum(math.exp(gamma) / math.sqrt(math.pi) for gamma in gammas) / len(gammas)


def _cosines(pairs: int, sizes: Sequence[int], key: Key) -> np.ndarray:
    """[pairs, layers]: cosines between delta and uniformly random directions in its half-space."""
    rng = key.numpy()
    first = rng.normal(size=(pairs, len(sizes))) ** 2
    others = rng.chisquare(np.maximum(np.array(sizes) - 1, 1), size=(pairs, len(sizes)))
    return np.sqrt(first / (first + others * (np.array(sizes) > 1)))


def projected(mutations: Mutations, chosen: np.ndarray) -> Mutations:
    """The mutations with the chosen ones, [clients, layers], projected onto `<mutation, delta> >= 0`."""
    active = chosen & (mutations.along < 0)
    return mutations._replace(along=np.where(active, 0.0, mutations.along), active=active)


def where_moved(mutations: Mutations, norms: np.ndarray) -> Mutations:
    """The mutations, set to zero in layers whose delta is 0."""
    moved = norms > 0
    along, across = mutations.along * moved, mutations.across * moved
    return Mutations(along, across, mutations.pair, mutations.active & moved)


class Mutants(Sequence[Weights]):
    """The mutated models, computed on access and not kept."""

    def __init__(
        self,
        model: Weights,
        before: Params,
        parts: Layers,
        norms: Sequence[float],
        mutations: Mutations,
        key: Key,
    ) -> None:
        self._model, self._before, self._parts, self._norms = model, before, parts, norms
        self._mutations, self._key = mutations, key

    def __len__(self) -> int:
        return len(self._mutations.along)

    @overload
    def __getitem__(self, position: int) -> Weights: ...

    @overload
    def __getitem__(self, position: slice) -> list[Weights]: ...

    def __getitem__(self, position: int | slice) -> Weights | list[Weights]:
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        along, across = (table[position] for table in self._mutations[:2])
        if not (along.any() or across.any()):
            return self._model
        params = extended(self._model.params, self._before, self._parts, np.where(across, 0.0, along))
        for index in np.flatnonzero(across).tolist():
            size, pair = float(across[index]) * self._norms[index], int(self._mutations.pair[position, index])
            params = {**params, **self._sideways(self._parts[index], float(along[index]), size, pair)}
        return self._model._replace(params=params)

    def _sideways(self, names: tuple[str, ...], along: float, across: float, pair: int) -> Params:
        """`w + along * delta + across * g`, with g made orthogonal to delta."""
        now = {name: self._model.params[name] for name in names}
        deltas = {name: difference(value, self._before[name]) for name, value in now.items()}
        drawn = {name: self._direction(pair, name, value) for name, value in now.items()}
        inner = sum(dot(drawn[name], deltas[name]) for name in names)
        square = sum(dot(drawn[name], drawn[name]) for name in names)
        within = inner / sum(dot(delta, delta) for delta in deltas.values())
        rest = math.sqrt(max(square - within * inner, 0.0))
        scale = across / rest if rest else 0.0
        return {
            name: (value.double() + (along - scale * within) * deltas[name] + scale * drawn[name]).to(
                value.dtype
            )
            for name, value in now.items()
        }

    def _direction(self, pair: int, name: str, like: Tensor) -> Tensor:
        draw = self._key.fold("directions", pair, name).torch()
        return torch.randn(like.shape, generator=draw).to(like.device, torch.float64)


def difference(after: Tensor, before: Tensor) -> Tensor:
    """`after - before` in float64."""
    return after.to(torch.float64, copy=True).sub_(before)


def extended(now: Params, before: Params, parts: Layers, by: np.ndarray) -> Params:
    """`now + by * (now - before)` with a factor for each layer; in float64, cast once."""
    whole = vectors(now, before)
    if whole is None or not _plain(*whole):
        factors = {name: float(factor) for names, factor in zip(parts, by, strict=True) for name in names}
        return {name: _extended(value, before[name], factors[name]) for name, value in now.items()}
    out, layout = torch.empty_like(whole[0]), in_one_vector(now).layout
    sizes = [sum(now[name].numel() for name in names) for names in parts]
    ends = np.array([0, *accumulate(sizes)])
    extend_parts(out.numpy(), _flat(whole[0]), _flat(whole[1]), ends, by)
    return layout.tree(out)


def _extended(now: Tensor, before: Tensor, by: float) -> Tensor:
    return difference(now, before).mul_(by).add_(now).to(now.dtype) if by else now


def dot(first: Tensor, second: Tensor) -> float:
    """The inner product."""
    return float(torch.dot(first.reshape(-1), second.reshape(-1)))


def _plain(*tensors: Tensor) -> bool:
    """Whether the compiled kernels support these tensors."""
    return all(t.dtype == torch.float32 and t.device.type == "cpu" and t.is_contiguous() for t in tensors)


def _flat(tensor: Tensor) -> np.ndarray:
    return tensor.detach().view(-1).numpy()


class Turn(NamedTuple):
    """The last two steps of the global model, per layer: [layers] float64 each."""

    norms: np.ndarray  # of the last step
    inner: np.ndarray  # inner products of the last step and the one before

    @classmethod
    def between(cls, parts: Layers, new: Params, now: Params, before: Params) -> Turn:
        """The turn between the steps `now - before` and `new - now`."""
        both = np.zeros((2, len(parts)))
        for index, names in enumerate(parts):
            for name in names:
                both[:, index] += _turn(new[name], now[name], before[name])
        return cls(np.sqrt(both[0]), both[1])

    def cosine(self, earlier: np.ndarray, push: np.ndarray) -> float | None:
        """The cosine between the previous step, of norms `earlier`, and the last step minus `push` times it.

        None if there was no previous step, or the last one is not finite.
        """
        if not np.isfinite(self.norms).all():
            return None
        inner = self.inner - push * earlier**2
        square = self.norms**2 - 2 * push * self.inner + (push * earlier) ** 2
        size = math.sqrt(max(float(square.sum()), 0.0) * float((earlier**2).sum()))
        return float(inner.sum()) / size if 0 < size < math.inf else None


def _turn(new: Tensor, now: Tensor, before: Tensor) -> np.ndarray:
    if _plain(new, now, before):
        return model_steps.turn(_flat(new), _flat(now), _flat(before))
    last = difference(new, now)
    return np.array([dot(last, last), dot(last, difference(now, before))])
