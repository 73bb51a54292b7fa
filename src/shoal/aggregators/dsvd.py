"""DSVD-FL's aggregation rule: from the similarity of updates to the clients' weights.

The paper's rule (`softmax_weights`) is a softmax of the mean similarity to the other clients.

    l_i = mean_(j != i) (a1 S_v + a2 S_s + a3 S_l)_ij,   g_i ~ exp(l_i / T)

Our rule collects evidence against each client over the rounds (`aggregators.dsvd_trust`): from the alignment
of singular directions (`aggregators.alignment`, a1), from norms (a2), from whole updates (a3), and from the
agreement of an update with the same client's earlier ones. Each tensor of an update is clipped to three times
its usual norm: similarities are bounded, so without clipping a long enough tensor would outweigh any
distrust.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.aggregators.aggregator import Outcome
from shoal.aggregators.alignment import HISTORY, SIGNS, alignment, folded
from shoal.aggregators.dsvd_evidence import Evidence
from shoal.aggregators.dsvd_similarity import (
    Apart,
    Form,
    Similarities,
    layer_weights,
    middle,
    similarities,
    wholes,
)
from shoal.aggregators.dsvd_trust import Lengths, Views, mostly_new, trusted
from shoal.aggregators.matrix import (
    NO_STEP,
    Decision,
    MatrixRule,
    UpdateMatrix,
    add_part,
    bounded,
    pieces,
    shortening,
    weighted,
)
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.threads import parallel_map
from shoal.core.types import Moment, Weights
from shoal.kernels.quantile import quantile
from shoal.parts.factors import is_matrix

TEMPERATURE = 0.02  # the default; a higher temperature makes the rule less strict
LONGEST = 3.0  # clipping limit of an update's tensor, in median norms
TOO_LONG, TOO_LONG_TENSOR = 4.0, 10.0  # longer updates, or tensors of them, are suspected; in usual norms
AT_FIRST = 2.0  # replaces TOO_LONG while most clients are new, when their updates are of similar norm
TOO_SHORT = 0.1  # shorter updates are suspected, which would only shrink the step; in usual norms
NOTHING = 1e-4  # of the median update: a shorter tensor may be rounding, as for a bias before BatchNorm
NOISE = 0.02  # of the likeness of whole updates, which is near 0 late in training and varies by chance


def unrelated(whole: Apart) -> Apart:
    """The distances between updates of these norms if they were orthogonal; they grow with the difference
    between the norms."""
    squares = np.square(whole.norms)
    return Apart(squares[:, None] + squares, whole.norms)


def _cosines(products: np.ndarray) -> np.ndarray:
    squares = products.diagonal(axis1=-2, axis2=-1)
    lengths = np.sqrt(np.where(squares > 0, squares, 1.0))
    found: np.ndarray = products / lengths[..., None] / lengths[..., None, :]
    return found


def softmax_weights(similar: Similarities, alphas: Sequence[float], temperature: float) -> Tensor:
    """[n] float64, sum 1: the paper's weights."""
    n = len(similar.updates)
    joint = torch.stack([alpha * part for alpha, part in zip(alphas, similar, strict=True)]).sum(0)
    scores = (joint.sum(1) - joint.diagonal()) / max(n - 1, 1)
    return torch.softmax(scores / temperature, 0)


class Pairs(NamedTuple):
    """Comparisons of all pairs of a round's updates."""

    apart: Mapping[str, Apart]  # by tensor
    aligned: Sequence[Tensor]  # alignment [clients, clients] of each matrix, if directions count
    matrices: Sequence[str]


@dataclass(frozen=True)
class Similarity(MatrixRule):
    """Weights updates by their similarity to the others: DSVD-FL's aggregation rule."""

    alpha1: float = 0.4  # weight of directions
    alpha2: float = 0.1  # weight of sizes
    alpha3: float = 0.5  # weight of whole updates
    temperature: float = TEMPERATURE
    form: Form = "invariant"
    literal: bool = False
    adaptive: bool = True
    rank: float = 0.5  # share of the full rank to which updates are truncated for the comparison

    def __post_init__(self) -> None:
        for name in ("alpha1", "alpha2", "alpha3"):
            alpha = getattr(self, name)
            if not 0 <= alpha < torch.inf:
                raise SpecError(f"{name} must be at least 0, got {alpha:g}; 0.4, 0.1 and 0.5 are usual")
        if not self.temperature > 0:
            raise SpecError(f"temperature must be > 0, got {self.temperature:g}; {TEMPERATURE} is usual")
        if not 0 < self.rank <= 1:
            raise SpecError(f"rank must be in (0, 1], got {self.rank:g}; it is a share of the largest rank")

    @property
    def alphas(self) -> tuple[float, float, float]:
        """The weights of directions, sizes and whole updates."""
        return (self.alpha1, self.alpha2, self.alpha3)

    @property
    def strictness(self) -> float:
        """In [0, 1]: 1 at the default temperature, 0 if it is infinite or all alphas are 0."""
        return min(1.0, TEMPERATURE / self.temperature) if any(self.alphas) else 0.0

    @property
    def collects(self) -> bool:
        """Whether evidence is collected; otherwise the weights are the paper's."""
        return self.adaptive and not self.literal

    def init(self, model: Weights) -> Evidence:
        """See `Aggregator`."""
        return Evidence({}, {}, {})

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`."""
        return self.judged(state, updates, [self.rank] * len(updates.ids), updates.weights, SIGNS)

    def finish(self, task: Task, state: Any, acc: UpdateMatrix, moment: Moment) -> Outcome:
        """See `Aggregator`."""
        came = acc.arrived()
        if not came.ids:
            return Outcome(state, NO_STEP)
        ranks = [self.rank] * len(came.ids)
        return self.judged(state, came, ranks, came.weights, moment.key).outcome(came)

    def judged(
        self, state: Evidence, updates: UpdateMatrix, ranks: Sequence[float], samples: Tensor, key: Key
    ) -> Decision:
        """The decision, given each client's rank and sample count; the key draws the signs of sketches."""
        parts = updates.parts()
        buffers = [name for name in parts if name in updates.model.buffers]
        if not self.collects:
            shares = self.softmax(parts, ranks, buffers) * updates.weights
            return weighted(state, updates, shares / shares.sum())
        remembered = partial(folded, updates.rows[:, None], HISTORY, SIGNS)
        compared, sketches = self._compared(parts, min(ranks), key, buffers, remembered)
        sketches = sketches[:, 0]
        own = state.agreement(updates.ids, sketches)
        past = state.of(updates.ids)
        weights, evidence = self._weighed(compared, past, own, buffers, bounded(samples))
        shares = weights * updates.weights
        shares = shares / shares.sum()
        step, pulls = self._bounded_step(updates, compared.apart, shares)
        after = state.updated(updates.ids, evidence, sketches, own).judged(updates.ids, weights)
        return Decision(after, step, shares, pulls, {"shut_out": after.out})

    def softmax(
        self, parts: Mapping[str, Tensor], ranks: Sequence[float], buffers: Collection[str] = ()
    ) -> Tensor:
        """The paper's weights for updates [clients, *shape], given by tensor."""
        parameters = {name: value for name, value in parts.items() if name not in buffers}
        similar = similarities(
            parameters if self.literal else parts,
            ranks,
            self.form,
            literal=self.literal,
            buffers=() if self.literal else buffers,
        )
        return softmax_weights(similar, self.alphas, self.temperature)

    def weigh(
        self,
        parts: Mapping[str, Tensor],
        rank: float,
        past: Tensor,
        own: Tensor,
        key: Key,
        buffers: Collection[str] = (),
        samples: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Weights and evidence for updates [clients, *shape], given by tensor and compared at one rank."""
        compared, _ = self._compared(parts, rank, key, buffers, lambda: None)
        return self._weighed(compared, past, own, buffers, samples)

    def _compared(
        self,
        parts: Mapping[str, Tensor],
        rank: float,
        key: Key,
        buffers: Collection[str],
        beside: Callable[[], Any],
    ) -> tuple[Pairs, Any]:
        """The comparisons that read all numbers of the updates, on all cores, and the result of `beside`,
        which runs in parallel."""
        matrices = [name for name in parts if is_matrix(parts[name][0]) and name not in buffers]
        looked_at = matrices if self.alpha1 else []
        work: list[Callable[[], Any]] = []
        work += [partial(alignment, parts[name], key.fold(name), rank) for name in looked_at]
        work += [partial(Apart.of, value.reshape(len(value), -1)) for value in parts.values()]
        *done, more = parallel_map(lambda each: each(), [*work, beside])
        apart = dict(zip(parts, done[len(looked_at) :], strict=True))
        return Pairs(apart, done[: len(looked_at)], matrices), more

    def _weighed(
        self,
        compared: Pairs,
        past: Tensor,
        own: Tensor,
        buffers: Collection[str],
        samples: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """See `weigh`."""
        apart, aligned, matrices = compared
        count = layer_weights({name: whole.norms for name, whole in apart.items()}, buffers)
        near = wholes(apart, count)
        far = wholes({name: unrelated(whole) for name, whole in apart.items()}, count)
        likeness = np.stack([near - far, *(matrix.numpy() for matrix in aligned)])
        say = np.array([2 * self.alpha3] + len(aligned) * [2 * self.alpha1 / max(len(matrices), 1)])
        views = Views(likeness, say, np.array([NOISE] + len(aligned) * [0.0]))
        whole = np.sqrt(sum(np.square(apart[name].norms) for name in apart if name not in buffers))
        least = NOTHING * float(middle(whole))
        longest = AT_FIRST if mostly_new(own.numpy()) else TOO_LONG
        lengths = [Lengths(whole, longest, TOO_SHORT, None if samples is None else samples.numpy())]
        tensors = np.stack([one.norms for one in apart.values()])
        lengths += [Lengths(np.maximum(tensors, least), TOO_LONG_TENSOR)]
        products = {name: apart[name].products() for name in apart if name not in buffers}
        inner = np.stack([np.sum(list(products.values()), 0), *(products[name] for name in matrices)])
        cosines = Views(_cosines(inner), np.full(len(inner), 2 * self.alpha3), np.zeros(len(inner)))
        size, strict = 10 * self.alpha2, self.strictness
        weights, evidence = trusted(views, -near, cosines, lengths, past.numpy(), own.numpy(), size, strict)
        return torch.from_numpy(weights), torch.from_numpy(evidence)

    def _bounded_step(
        self, updates: UpdateMatrix, apart: Mapping[str, Apart], shares: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The weighted sum of the updates, with long tensors clipped, and the clients' shares of it."""
        limit = LONGEST / self.strictness if self.strictness else torch.inf
        step, work = updates.no_step(), []
        for name, (first, last) in updates.ranges().items():
            coefficients = shares
            if limit < torch.inf:
                norms = apart[name].norms
                usual = quantile(norms, shares.numpy(), 0.5)
                coefficients = shares * shortening(torch.from_numpy(norms), limit * usual)
            work += [
                partial(add_part, step, updates.rows, coefficients, *piece) for piece in pieces(first, last)
            ]
        parts = parallel_map(lambda each: each(), work)
        pulled, length = torch.stack([pulls for pulls, _ in parts]).sum(0), sum(square for _, square in parts)
        return step, pulled / length if length else pulled
