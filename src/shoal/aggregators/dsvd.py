"""From how alike clients are to how much each counts.

The paper's rule (`softmax_weights`): the mean similarity to the others, then a softmax.

    l_i = mean_(j != i) (a1 S_v + a2 S_s + a3 S_l)_ij,   g_i ~ exp(l_i / T)

Ours (`trusted`) keeps its form and lets what is seen decide the scales. With S one of S_v, S_s, S_l:

    l_i = sum_j g_j S_ij / sum_j g_j over the others, those who are copies of i left out
    e_i = min(0, (l_i - m) / max(T, s) + 1.5), with m the median of l and s its spread above the median
    E_i = 0.7 E_i of the last time + 2 (a1 e_i[S_v] + a2 e_i[S_s] + a3 e_i[S_l])
    g_i ~ exp(E_i) / c_i, with c_i how many copies of i there are

The first l is a median over the others, the next ones trust those who were trusted before, five times over.

- A component counts by how far a client falls out of what is usual in this round, not by its raw size: the
  a's and T adapt to data, model and round. T is what is never taken for a difference. Attackers pull
  the lower half of the scores apart, so the spread is that of the upper half.
- Nobody gains by being more central than the median: e is at most 0, and honest clients count alike.
- Copies count once. Honest updates are made from different samples in different orders, and are never
  nearer than a fraction of their usual distance; those of clients who plot are, and raise each other's
  similarity in the paper's rule. The usual distance is that within which half of the clients find half of
  the others, so a majority of equal updates are no copies but the rule.
- An update longer than three times the usual is shortened to that: similarities are bounded, and an update
  that is long enough would outweigh any distrust.
- Evidence adds up over rounds, and fades: updates grow less alike as training goes on, and liars stay liars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shoal.aggregators.matrix import Decision, MatrixRule, UpdateMatrix, gram, shortening
from shoal.aggregators.similarity import Claims, Form, Similarities, similarities
from shoal.core.errors import SpecError
from shoal.core.types import Weights

MARGIN = 1.5  # spreads below the median that are nothing unusual
SHARPNESS = 2.0  # how fast trust falls beyond
MEMORY = 0.7  # what is left of the evidence one round later
NEAR = 0.5  # of the usual distance: what lies within has a share in a copy
STEPS = 5  # of asking those who are trusted whom they trust
TEMPERATURE = 0.02  # the default; the hotter, the less is made of copies and of lengths
LONGEST = 3.0  # median lengths that an update may have
UPPER = 0.84  # a normal variable is one deviation above its median here


def softmax_weights(similar: Similarities, alphas: Sequence[float], temperature: float) -> Tensor:
    """[n] float64, sum 1: the paper's weights."""
    n = len(similar.updates)
    joint = torch.stack([alpha * part for alpha, part in zip(alphas, similar, strict=True)]).sum(0)
    scores = (joint.sum(1) - joint.diagonal()) / max(n - 1, 1)
    return torch.softmax(scores / temperature, 0)


def trusted(
    similar: Similarities, alphas: Sequence[float], temperature: float, past: Tensor
) -> tuple[Tensor, Tensor]:
    """[n] float64 each: the weights, sum 1, and the evidence against each client, given that of the past."""
    copied = copies(-similar.updates)
    once = copied.sum(1) ** -strictness(alphas, temperature)
    others = 1 - copied
    weights, evidence = once, past
    for step in range(STEPS):
        new = torch.zeros_like(past)
        for alpha, part in zip(alphas, similar, strict=True):
            if alpha:
                score = _medians(part, others * once) if step == 0 else _means(part, others * weights)
                new += alpha * unusual(score, once, temperature)
        evidence = MEMORY * past + SHARPNESS * new
        weights = once * (evidence - evidence.max()).exp()
    return weights / weights.sum(), evidence


def strictness(alphas: Sequence[float], temperature: float) -> float:
    """In [0, 1]: 1 at the default temperature, 0 where it is infinite or nothing is looked at."""
    return min(1.0, TEMPERATURE / temperature) if any(alphas) else 0.0


def copies(distances: Tensor) -> Tensor:
    """[n, n] in [0, 1]: how far two clients are copies of one another; each is one of itself."""
    n = len(distances)
    apart = distances.clone().fill_diagonal_(torch.inf)
    within = apart.sort(1).values[:, (n - 2) // 2] if n > 1 else apart[:, 0]  # half of the others
    usual = float(within.sort().values[(n - 1) // 2])
    near = NEAR * usual
    if not 0 < near < torch.inf:
        return torch.eye(n, dtype=distances.dtype)
    return (1 - distances / near).clamp(min=0).fill_diagonal_(1)


def unusual(scores: Tensor, counts: Tensor, temperature: float) -> Tensor:
    """[n], at most 0: how far each falls below what is usual, in spreads."""
    middle = quantile(scores, counts, 0.5)
    spread = max(quantile(scores, counts, UPPER) - middle, temperature)
    return ((scores - middle) / spread + MARGIN).clamp(max=0)


def quantile(values: Tensor, counts: Tensor, level: float) -> float:
    """Of values that count so often; between two of them a straight line; 0 if there are none."""
    here, often = values.numpy(), counts.numpy()  # for few numbers torch takes five times as long
    here, often = here[often > 0], often[often > 0]
    if not len(here):
        return 0.0
    order = here.argsort(kind="stable")
    ordered, held = here[order], often[order]
    ends = held.cumsum()
    places = (ends - held / 2) / ends[-1]
    after = min(int(places.searchsorted(level)), len(here) - 1)
    before = max(after - 1, 0)
    gap = places[after] - places[before]
    share = min(max((level - places[before]) / gap, 0.0), 1.0) if gap > 0 else 1.0
    return float(ordered[before] + share * (ordered[after] - ordered[before]))


def shortened(rows: Tensor, counts: Tensor, longest: float) -> Tensor:
    """[n] in (0, 1]: factors that make no row [n, numbers] longer than so many times the usual."""
    norms = gram(rows).diagonal().sqrt()
    return shortening(norms, longest * quantile(norms, counts, 0.5))


def _medians(part: Tensor, counts: Tensor) -> Tensor:
    """[n]: each one's median similarity to the others."""
    pairs = zip(part, counts, strict=True)
    return torch.tensor([quantile(row, count, 0.5) for row, count in pairs], dtype=part.dtype)


def _means(part: Tensor, counts: Tensor) -> Tensor:
    total = counts.sum(1)
    return (counts * part).sum(1) / torch.where(total > 0, total, 1.0)


class Evidence(NamedTuple):
    """What is remembered."""

    against: Mapping[int, float]  # by client, for those who took part

    def of(self, ids: Sequence[int]) -> Tensor:
        """[n] float64."""
        return torch.tensor([self.against.get(client, 0.0) for client in ids], dtype=torch.float64)

    def updated(self, ids: Sequence[int], evidence: Tensor) -> Evidence:
        """With what is known now."""
        return Evidence({**self.against, **dict(zip(ids, evidence.tolist(), strict=True))})


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

    def init(self, model: Weights) -> Evidence:
        """See `Aggregator`."""
        return Evidence({})

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`."""
        return self.judged(state, updates, [self.rank] * len(updates.ids))

    def judged(
        self, state: Evidence, updates: UpdateMatrix, ranks: Sequence[float], claims: Claims = ()
    ) -> Decision:
        """The same, with a rank for each client, and what it claims that its update decomposes into."""
        buffers = updates.model.buffers.keys()
        weights, evidence = self.weigh(updates.parts(), ranks, state.of(updates.ids), buffers, claims)
        shares = weights * updates.weights
        shares = shares / shares.sum()
        if self.adaptive and not self.literal:
            strict = strictness(self.alphas, self.temperature)
            shares = shares * shortened(updates.rows, shares, LONGEST / strict if strict else torch.inf)
        return Decision(state.updated(updates.ids, evidence), updates.combined(shares), shares)

    def weigh(
        self,
        parts: Mapping[str, Tensor],
        ranks: Sequence[float],
        past: Tensor,
        buffers: Any = (),
        claims: Claims = (),
    ) -> tuple[Tensor, Tensor]:
        """Weights and evidence for updates [clients, *shape], by tensor."""
        parameters = {name: value for name, value in parts.items() if name not in buffers}
        similar = similarities(
            parameters if self.literal else parts,
            ranks,
            self.form,
            literal=self.literal,
            buffers=[name for name in parts if name in buffers],
            claims=claims,
        )
        if self.adaptive and not self.literal:
            return trusted(similar, self.alphas, self.temperature, past)
        return softmax_weights(similar, self.alphas, self.temperature), past
