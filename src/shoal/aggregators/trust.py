"""Evidence against clients, and how much each counts after it.

A view is a likeness S_ij of all clients that is 0 for those who have nothing in common. In each round

    l_i = sum_j g_j S_ij / sum_j g_j over the others, those who are copies of i left out
    m, s = the median of l and its spread above the median, among those who are trusted
    e_i = 2 (m - t) (l_i - t) / s^2,   t = max(0, m - 4 s)                                -> `verdict`

e_i is a log likelihood ratio: how much likelier l_i is for an honest client, around m, than for one that
lies as far on the other side of t. Where clients have little in common (m is small), it is small, and
says nothing either way. Who agrees with the others as much as t never has anything against it.

    E_i = min(0, E_i + e_i), where e_i is at most 1 and at least -12: trust is lost fast and regained slowly
    g_i ~ min(1, exp(E_i + 5)) / c_i, with c_i how many copies of i there are

Evidence does not fade: it adds up in rounds that tell something, and rounds that tell nothing leave it
alone. Nobody gains by being more central than others: honest clients count alike.

- Copies count once. Honest updates are made from different samples in different orders, and are never
  nearer than a fraction of their usual distance. The usual distance is that within which half of the clients
  find half of the others, so a majority of equal updates are no copies but the rule.
- A client who was among the others and turns against its own past is caught by that -> `reversal`.
- Who is far longer than the trusted with as many samples are, or sends next to nothing, is suspected
  -> `excess`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.kernels import quantile as kernels

MARGIN = 4.0  # spreads below the median that are nothing unusual
LEAST_SPREAD = 0.15  # of the median
WORST, BEST = -12.0, 1.0  # what one round can say
SLACK = 5.0  # evidence that changes nothing yet
NEAR = 0.5  # of the usual distance: what lies within has a share in a copy
STEPS = 5  # of asking those who are trusted whom they trust
UPPER = 0.84  # a normal variable is one deviation above its median here
STEEP = 40.0  # evidence against an update e times as long as may be


class View(NamedTuple):
    """How alike clients are in one respect."""

    likeness: Tensor  # [clients, clients] float64; 0: nothing in common
    say: float
    noise: float = 0.0  # the least spread of honest clients, whatever is found


class Lengths(NamedTuple):
    """Of updates, or of one tensor of them."""

    norms: Tensor  # [clients] float64
    limit: float  # in usual lengths: beyond, a client is suspected
    least: float = 0.0  # in usual lengths: below, too
    samples: Tensor | None = None  # [clients]: who has more takes more steps, and may go farther


def trusted(
    views: Sequence[View],
    apart: Tensor,
    lengths: Sequence[Lengths],
    past: Tensor,
    own: Tensor,
    size: float = 1.0,
    strict: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """[n] float64 each: the weights, sum 1, and the evidence, given that of the past.

    `apart` [n, n] are distances, `size` is the say of lengths, `own` [n] says how each update agrees with
    the same client's earlier ones (NaN: there are none), and `strict` in [0, 1] how much is made of
    everything.
    """
    copied = copies(apart)
    once, others = copied.sum(1) ** -strict, 1 - copied
    weights, evidence = once, past
    for step in range(STEPS):
        new, scores = torch.zeros_like(past), _means if step else _medians
        for view in views:
            new += view.say * verdict(scores(view.likeness, others * weights), weights, view.noise)
        # agreement excuses neither length nor treason
        long = torch.stack([excess(length, weights) for length in lengths]).min(0).values
        new = new.clamp(max=BEST) + size * long + reversal(own, weights)
        evidence = (past + strict * new.clamp(min=WORST)).clamp(max=0)
        weights = once * (evidence + SLACK).clamp(max=0).exp()
    return weights / weights.sum(), evidence


def verdict(scores: Tensor, counts: Tensor, noise: float = 0.0) -> Tensor:
    """[n]: for (above 0) and against (below 0) each client, from how alike it is to the trusted ones."""
    middle = quantile(scores, counts, 0.5)
    if middle <= 0:
        return torch.zeros_like(scores)
    spread = max(quantile(scores, counts, UPPER) - middle, LEAST_SPREAD * middle, noise)
    threshold = max(0.0, middle - MARGIN * spread)
    return 2 * (middle - threshold) * (scores - threshold) / spread**2


def reversal(own: Tensor, counts: Tensor) -> Tensor:
    """[n]: against who turns round; others are as they were."""
    known = ~own.isnan()
    usual = max(quantile(own[known], counts[known], 0.5), 0.0)
    return (2 * usual * own.nan_to_num() / LEAST_SPREAD**2).clamp(max=0)


def excess(lengths: Lengths, counts: Tensor) -> Tensor:
    """[n]: against who is too long, or sends next to nothing."""
    norms = lengths.norms
    if quantile(norms, counts, 0.5) <= 0:
        return torch.zeros_like(norms)
    if lengths.samples is not None:
        norms = norms / lengths.samples ** growth(norms, lengths.samples, counts)
    ratios = (norms / quantile(norms, counts, 0.5)).clamp(min=1e-30)
    return -STEEP * torch.maximum(ratios / lengths.limit, lengths.least / ratios).clamp(min=1).log()


def growth(norms: Tensor, samples: Tensor, counts: Tensor) -> float:
    """b in [0, 1], where lengths grow as samples^b: the median slope between two clients (Theil and Sen).

    A slope counts for more the more unlike the two are in size, and the more they are trusted.
    """
    i, j = torch.triu_indices(len(norms), len(norms), 1)
    logs, sizes = norms.clamp(min=1e-30).log(), samples.log()
    run = sizes[i] - sizes[j]
    slopes = (logs[i] - logs[j]) / torch.where(run == 0, 1.0, run)
    return min(max(quantile(slopes, counts[i] * counts[j] * run.abs(), 0.5), 0.0), 1.0)


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


def quantile(values: Tensor, counts: Tensor, level: float) -> float:
    """Of values that count so often; between two of them a straight line; 0 if there are none."""
    return kernels.quantile(values.double().numpy(), counts.double().numpy(), level)


def _medians(part: Tensor, counts: Tensor) -> Tensor:
    """[n]: each one's median likeness to the others."""
    return torch.from_numpy(kernels.quantiles(part.numpy(), counts.numpy(), 0.5))


def _means(part: Tensor, counts: Tensor) -> Tensor:
    total = counts.sum(1)
    return (counts * part).sum(1) / torch.where(total > 0, total, 1.0)
