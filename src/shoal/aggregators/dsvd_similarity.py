"""The similarity of clients' updates: in the directions, the sizes, and the whole of their matrices.

For two updates D_i, D_j of one tensor, with singular vectors U, V and singular values s cut to ranks k:

    S_v  directions   invariant:  <U_i V_i^T, U_j V_j^T> / sqrt(k_i k_j), in [-1, 1]
                      literal:    (tr(U_i^T U_j) + tr(V_i^T V_j)) / 2 k, with the smaller k
                      subspace:   (||U_i^T U_j||^2 + ||V_i^T V_j||^2) / 2 k, with the smaller k
    S_s  sizes        -||s_i - s_j|| / (||s_i|| + ||s_j||), in [-1, 0]
    S_l  the whole    -||D_i - D_j|| / (||D_i|| + ||D_j||), in [-1, 0]

The signs of singular vectors are arbitrary. The literal form therefore needs a convention (the largest entry
of u is positive), and jumps when another entry becomes the largest; the subspace form cannot tell D from -D.
The invariant form is a function of D alone: 1 for equal updates and -1 for opposite ones.

A tensor is weighted by its share of an update's energy, as the median over clients, so that no single client
decides which tensors count. Vectors have no singular vectors and count only in S_l.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.aggregators.matrix import gram, squared_distances
from shoal.parts.factors import Factors, as_matrix, factored, full_rank, is_matrix, positive, rank_of

Form = Literal["invariant", "literal", "subspace"]
FAINT = 1e-3  # of a matrix's strongest direction: weaker ones may be rounding errors
BUFFERS = 0.1  # total weight of the floating buffers, relative to the parameters


class Similarities(NamedTuple):
    """The similarities between all clients, each [clients, clients] float64."""

    vectors: Tensor  # S_v
    values: Tensor  # S_s
    updates: Tensor  # S_l


class Apart(NamedTuple):
    """The distances between clients in one tensor, or in its singular values."""

    squares: np.ndarray  # [clients, clients] float64: squared distances
    norms: np.ndarray  # [clients]

    @classmethod
    def of(cls, rows: Tensor) -> Apart:
        """The distances and norms of rows [clients, numbers]."""
        products = gram(rows)
        return cls(squared_distances(products).cpu().numpy(), products.diagonal().sqrt().cpu().numpy())

    def products(self) -> np.ndarray:
        """[clients, clients]: inner products."""
        squares = np.square(self.norms)
        found: np.ndarray = (squares[:, None] + squares - self.squares) / 2
        return found

    def nearness(self) -> np.ndarray:
        """[clients, clients] in [-1, 0]: minus the distance, divided by the sum of both norms."""
        both = self.norms[:, None] + self.norms
        found: np.ndarray = -np.sqrt(self.squares) / np.where(both > 0, both, 1.0)
        return found


def similarities(
    updates: Mapping[str, Tensor],
    shares: Sequence[float],
    form: Form = "invariant",
    *,
    literal: bool = False,
    buffers: Collection[str] = (),
) -> Similarities:
    """The similarities of updates [clients, *shape], given by tensor; each client's matrices are cut to its
    share of their full rank.

    `literal` keeps raw sums and distances, over all tensors together.
    """
    n = len(shares)
    apart = {name: Apart.of(value.reshape(n, -1)) for name, value in updates.items()}
    cut = {name: _cut(value, shares) for name, value in updates.items() if is_matrix(value[0])}
    vectors = {name: FORMS[form](factors, raw=literal) for name, factors in cut.items()}
    sizes = {name: Apart.of(_sizes(factors)) for name, factors in cut.items()}
    nothing = torch.zeros(n, n, dtype=torch.float64)
    if literal:
        return Similarities(
            sum(vectors.values(), nothing),
            -sum((torch.from_numpy(size.squares) for size in sizes.values()), nothing).sqrt(),
            -sum((torch.from_numpy(whole.squares) for whole in apart.values()), nothing).sqrt(),
        )
    count = layer_weights({name: whole.norms for name, whole in apart.items()}, buffers)
    total = sum(count[name] for name in cut) or 1.0
    return Similarities(
        sum((count[name] / total * vectors[name] for name in cut), nothing),
        sum((count[name] / total * torch.from_numpy(sizes[name].nearness()) for name in cut), nothing),
        torch.from_numpy(wholes(apart, count)),
    )


def wholes(apart: Mapping[str, Apart], count: Mapping[str, float]) -> np.ndarray:
    """[clients, clients]: S_l over all tensors."""
    found: np.ndarray = np.sum([count[name] * whole.nearness() for name, whole in apart.items()], 0)
    return found


def middle(values: np.ndarray) -> np.ndarray:
    """[...]: the medians of values [..., n]. For few values, `np.median` takes ten times as long."""
    ordered, n = np.sort(values), values.shape[-1]
    found: np.ndarray = (ordered[..., (n - 1) // 2] + ordered[..., n // 2]) / 2
    return found


def layer_weights(norms: Mapping[str, np.ndarray], buffers: Collection[str]) -> dict[str, float]:
    """The weight of each tensor: its share of the energy, as the median over clients; they sum to 1."""
    counts: dict[str, float] = {}
    for names, portion in ((norms.keys() - buffers, 1.0), (set(buffers), BUFFERS)):
        if not names:
            continue
        energy = np.square([norms[name] for name in sorted(names)])
        total = energy.sum(0)
        share = middle(energy / np.where(total > 0, total, 1.0))
        share = share / share.sum() if share.any() else np.full(len(share), 1 / len(share))
        counts |= dict(zip(sorted(names), (portion * share).tolist(), strict=True))
    every = sum(counts.values())
    return {name: counts[name] / every for name in norms}


def _cut(updates: Tensor, shares: Sequence[float]) -> list[Factors]:
    """Each client's matrix, cut to its rank and without directions that may be rounding errors."""
    largest = full_rank(updates[0])
    pairs = zip(updates, shares, strict=True)
    return [_strong(factored(as_matrix(update), rank_of(share, largest))) for update, share in pairs]


def _sizes(cut: Sequence[Factors]) -> Tensor:
    """[clients, rank] float64: the singular values, padded with zeros."""
    sizes = torch.zeros(len(cut), max(len(factors.s) for factors in cut), dtype=torch.float64)
    for i, factors in enumerate(cut):
        sizes[i, : len(factors.s)] = factors.s
    return sizes


def _strong(factors: Factors) -> Factors:
    """The factors without directions that may be rounding errors."""
    kept = (factors.s > FAINT * factors.s[:1]).nonzero()[:, 0]
    return Factors(*(part.index_select(-1, kept) for part in factors))


def _invariant(cut: Sequence[Factors], *, raw: bool) -> Tensor:
    turned = torch.stack([(factors.u @ factors.v.T).reshape(-1) for factors in cut])
    products = gram(turned)
    lengths = products.diagonal().sqrt()
    return products if raw else products / positive(lengths[:, None] * lengths[None, :])


def _pairwise(cut: Sequence[Factors], *, raw: bool, squared: bool) -> Tensor:
    found = torch.zeros(len(cut), len(cut), dtype=torch.float64)
    signed = cut if squared else [_signed(factors) for factors in cut]
    for i, one in enumerate(signed):
        for j, two in enumerate(signed):
            rank = min(len(one.s), len(two.s))
            if squared:
                parts = [(one.u.T @ two.u).square().sum(), (one.v.T @ two.v).square().sum()]
            else:
                parts = [(a[:, :rank] * b[:, :rank]).sum() for a, b in ((one.u, two.u), (one.v, two.v))]
            found[i, j] = float(sum(parts)) / 2 / (1 if raw else max(rank, 1))
    return found


def _signed(factors: Factors) -> Factors:
    """The factors with signs such that the largest entry of every column of u is positive."""
    if not len(factors.s):
        return factors
    peaks = factors.u.gather(0, factors.u.abs().argmax(0, keepdim=True))
    return Factors(factors.u * peaks.sign(), factors.s, factors.v * peaks.sign())


FORMS: dict[Form, Callable[..., Tensor]] = {
    "invariant": _invariant,
    "literal": lambda cut, *, raw: _pairwise(cut, raw=raw, squared=False),
    "subspace": lambda cut, *, raw: _pairwise(cut, raw=raw, squared=True),
}
