"""From how alike clients are to how much each counts.

The paper's rule (`softmax_weights`): the mean similarity to the others, then a softmax.

    l_i = mean_(j != i) (a1 S_v + a2 S_s + a3 S_l)_ij,   g_i ~ exp(l_i / T)

Ours collects evidence against each client over the rounds (`aggregators.trust`): from the alignment of
singular directions (`aggregators.alignment`, a1), from lengths (a2) and from whole updates (a3), and from
how an update agrees with the same client's earlier ones. No tensor of an update counts for more than three
times its usual length: similarities are bounded, and a part that is long enough would outweigh any
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
from shoal.aggregators.evidence import Evidence
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
from shoal.aggregators.similarity import (
    Apart,
    Form,
    Similarities,
    layer_weights,
    middle,
    similarities,
    wholes,
)
from shoal.aggregators.trust import Lengths, Views, mostly_new, trusted
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.threads import side_by_side
from shoal.core.types import Moment, Weights
from shoal.kernels.quantile import quantile
from shoal.parts.factors import is_matrix

TEMPERATURE = 0.02  # the default; the hotter, the less is made of everything
LONGEST = 3.0  # median lengths that a tensor of an update counts with at most
TOO_LONG, TOO_LONG_TENSOR = 4.0, 10.0  # usual lengths: beyond, an update, or a tensor of it, is suspected
AT_FIRST = 2.0  # usual lengths of an update, instead, while most clients are new and alike in length
TOO_SHORT = 0.1  # usual lengths: below, an update is suspected; it would only make the step shorter
NOTHING = 1e-4  # of the median update: a shorter tensor may be rounding, as of a bias before BatchNorm
NOISE = 0.02  # of the likeness of whole updates: late in training it is near 0, and differs by chance


def unrelated(whole: Apart) -> Apart:
    """As far apart as updates of these lengths are that have nothing in common: the farther, the more unlike
    the lengths."""
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
    """How all pairs of a round's updates compare."""

    apart: Mapping[str, Apart]  # by tensor
    aligned: Sequence[Tensor]  # [clients, clients] for each matrix, if directions count
    matrices: Sequence[str]


@dataclass(frozen=True)
class Similarity(MatrixRule):
    """Weighs updates by how alike they are: DSVD-FL's rule."""

    alpha1: float = 0.4  # of directions
    alpha2: float = 0.1  # of sizes
    alpha3: float = 0.5  # of whole updates
    temperature: float = TEMPERATURE
    form: Form = "invariant"
    literal: bool = False
    adaptive: bool = True
    rank: float = 0.5  # that updates are cut to, for comparing them

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
        """Of directions, sizes and whole updates."""
        return (self.alpha1, self.alpha2, self.alpha3)

    @property
    def strictness(self) -> float:
        """In [0, 1]: 1 at the default temperature, 0 where it is infinite or nothing is looked at."""
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
        """The step. Each client has a rank and a number of samples; the key is for the signs of sketches."""
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
        """The paper's weights for updates [clients, *shape], by tensor."""
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
        """Weights and evidence for updates [clients, *shape], by tensor, all compared at one rank."""
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
        """What has to do with all numbers of the updates, on all cores; and what `beside` returns, which runs
        beside it."""
        matrices = [name for name in parts if is_matrix(parts[name][0]) and name not in buffers]
        looked_at = matrices if self.alpha1 else []
        work: list[Callable[[], Any]] = []
        work += [partial(alignment, parts[name], key.fold(name), rank) for name in looked_at]
        work += [partial(Apart.of, value.reshape(len(value), -1)) for value in parts.values()]
        *done, more = side_by_side(lambda each: each(), [*work, beside])
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
        """The sum of updates, no tensor of which is far longer than usual, and the clients' shares of it."""
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
        parts = side_by_side(lambda each: each(), work)
        pulled, length = torch.stack([pulls for pulls, _ in parts]).sum(0), sum(square for _, square in parts)
        return step, pulled / length if length else pulled
