"""Evidence against clients, and how much each counts after it.

A view is a likeness S_ij of all clients that is 0 for those who have nothing in common. In each round

    l_i = sum_j g_j S_ij / sum_j g_j over the others, those who are copies of i left out
    m, s = the median of l and its spread above the median, among those who are trusted
    e_i = 2 (m - t) (l_i - t) / s^2,   t = max(0, m - 4 s)                                -> `verdict`

e_i is a log likelihood ratio: how much likelier l_i is for an honest client, around m, than for one that
lies as far on the other side of t. Where clients have little in common (m is small), it is small, and
says nothing either way. Who agrees with the others as much as t never has anything against it.

How unlike honest clients are shows in the view in which they differ most: s is at least that view's s / m,
within 0.15 and 0.25, times m (`unlike`). From 0.25 on t is 0, and only who goes against the others is
suspected, not who has nothing in common with them. A client with other labels than the rest is in part
against them, round after round. So what is mild counts as nothing, and does not add up:

    E_i = min(0, E_i + e_i), where e_i is at most 1, an e_i < 0 has 4 added up to 0, and the least is -12
    g_i ~ min(1, exp(E_i + 5)) / c_i, with c_i how many copies of i there are

Trust is lost fast and regained slowly.

While most clients are new, the model is young, and honest clients agree as they never will again: then what
is mild counts too, and only those are asked against whom there is nothing at all (`mostly_new`). Otherwise
several who lie could widen the spread so far that all that is said against them is mild.

Evidence does not fade: it adds up in rounds that tell something, and rounds that tell nothing leave it
alone. Nobody gains by being more central than others: honest clients count alike.

- Copies count once. Honest updates are made from different samples in different orders, and are never
  nearer than a fraction of their usual distance. The usual distance is that within which half of the clients
  find half of the others, so a majority of equal updates are no copies but the rule.
- Where clients are alike, what sets one apart is chance, and chance is nobody else's. Several who differ from
  the mean in the same way have a reason in common, such as a backdoor, or, in the last layer alone, labels
  that they all falsify -> `company`. This is an account of its own: E_i above and this one, both at most 0,
  are added up for the weight. Later all clients look unlike, and nothing more is found; but nobody regains
  in the one account by what the other one tells.
- A client who was among the others and turns against its own past is caught by that -> `reversal`.
- Who is far longer than the trusted with as many samples are, or sends next to nothing, is suspected
  -> `excess`.

All of this is about a few numbers, hundreds of times a round: in NumPy, whose calls cost less than torch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.kernels.quantile import quantile, quantiles

MARGIN = 4.0  # spreads below the median that are nothing unusual
TOGETHER = 3.0  # the same for how alone a client is in what sets it apart
ALIKE, UNLIKE = 0.08, 0.25  # of the median: the least spread, where clients are alike and where they are not
LEAST_SPREAD = 0.15  # of the median, of likeness
SAME = 1e-9  # of an update's squared length: what is less sets nobody apart
OWN_SPREAD = 0.15  # of how an honest client's update agrees with its earlier ones
WORST, BEST = -12.0, 1.0  # what one round can say
MILD = 4.0  # evidence against a client that says nothing: to be unlike the others is no lie
FEWEST = 6  # clients of whom some may be company
SLACK = 5.0  # evidence that changes nothing yet
NEAR = 0.5  # of the usual distance: what lies within has a share in a copy
STEPS = 5  # of asking those who are trusted whom they trust
UPPER = 0.84  # a normal variable is one deviation above its median here
STEEP = 40.0  # evidence against an update e times as long as may be


class Views(NamedTuple):
    """How alike clients are, in several respects."""

    likeness: np.ndarray  # [views, clients, clients] float64; 0: nothing in common
    say: np.ndarray  # [views]
    noise: np.ndarray  # [views]: the least spread of honest clients, whatever is found


class Lengths(NamedTuple):
    """Of updates, or of all tensors of them."""

    norms: np.ndarray  # [clients] or [tensors, clients] float64
    limit: float  # in usual lengths: beyond, a client is suspected
    least: float = 0.0  # in usual lengths: below, too
    samples: np.ndarray | None = None  # [clients]: who has more takes more steps, and may go farther


def trusted(
    views: Views,
    apart: np.ndarray,
    cosines: Views,
    lengths: Sequence[Lengths],
    past: np.ndarray,
    own: np.ndarray,
    size: float = 1.0,
    strict: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """[n] float64, sum 1: the weights; and [2, n]: the evidence, given that of the past. See `nothing_known`.

    `apart` [n, n] are distances, `cosines` are those of whole updates and of parts of them, `size` is the say
    of lengths, `own` [n] says how each update agrees with the same client's earlier ones (NaN: there are
    none), and `strict` in [0, 1] how much is made of everything.
    """
    copied = copies(apart)
    once, others = copied.sum(1) ** -strict, 1 - copied
    weights, evidence = once, past
    mild, slack = (0.0, 0.0) if mostly_new(own) else (MILD, SLACK)
    for step in range(STEPS):
        before, average = weights, _means if step else _medians
        scores = average(views.likeness, others * weights)
        differ = unlike(scores, weights)
        new = views.say @ verdict(scores, weights, max(differ, LEAST_SPREAD), views.noise)
        new = np.where(new < 0, np.minimum(new + mild, 0), np.minimum(new, BEST))
        # agreement excuses neither length nor treason nor company
        long = np.min(np.vstack([excess(length, weights) for length in lengths]), 0)
        new = np.maximum(new + size * long + reversal(own, weights), WORST)
        told = np.stack([new, _in_company(cosines, others, weights, differ)])
        evidence = np.minimum(past + strict * told, 0)
        weights = once * np.exp(np.minimum(evidence.sum(0) + slack, 0))
        if step and np.array_equal(weights, before):  # asked again, they would say the same
            break
    weights = once * np.exp(np.minimum(evidence.sum(0) + SLACK, 0))
    return weights / weights.sum(), evidence


def nothing_known(clients: int) -> Tensor:
    """[2, clients] float64: no evidence, neither from likeness, length and treason nor from company."""
    return torch.zeros(2, clients, dtype=torch.float64)


def _in_company(cosines: Views, others: np.ndarray, counts: np.ndarray, differ: float) -> np.ndarray:
    """[n]: against who is in company, in the part of an update where it shows most, and nothing against
    anybody where clients are unlike; for who is alone, at all times."""
    alone = 1 - company(cosines.likeness, others, counts)
    found = cosines.say[:, None] * verdict(alone, counts, ALIKE, cosines.noise, TOGETHER)
    told: np.ndarray = np.clip(np.min(found, 0), WORST / 2, BEST)
    alike = max(LEAST_SPREAD - differ, 0.0) / (LEAST_SPREAD - ALIKE)
    return np.where(told < 0, alike * told, told)


def mostly_new(own: np.ndarray) -> bool:
    """Whether there is no past to compare most clients with."""
    return 2 * int(np.isnan(own).sum()) > len(own)


def company(cosines: np.ndarray, others: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[..., n]: the cosine between what sets a client apart from the trusted mean and what does so with
    others, from cosines [..., n, n] of updates; the second largest, so that a pair is no company, and 0 for
    copies, who are counted elsewhere.

    The mean is that of third parties. One that held the two would be nearer to who is trusted, and its
    chance would be common to all who are not: they would look like company because they are distrusted.
    """
    if cosines.shape[-1] < FEWEST:
        return np.zeros(cosines.shape[:-1])
    mine, theirs = counts[:, None], counts[None, :]
    pulled, own = (cosines * counts).sum(-1), cosines.diagonal(axis1=-2, axis2=-1)[..., None]
    count = counts.sum() - mine - theirs
    count = np.where(count > SAME, count, np.inf)
    along = pulled[..., None] - mine * own - theirs * cosines  # i with the sum of third parties
    turned = along.swapaxes(-1, -2)
    square = (counts * pulled).sum(-1)[..., None, None] - mine * (pulled[..., None] + along)
    square = square - theirs * (pulled[..., None, :] + turned)
    along, turned, square = along / count, turned / count, square / count**2
    apart = own - 2 * along + square
    apart = np.sqrt(np.where(apart > SAME, apart, np.inf))
    rest = cosines - along - turned + square
    second: np.ndarray = np.sort(others * rest / apart / apart.swapaxes(-1, -2))[..., -2]
    return second


def unlike(scores: np.ndarray, counts: np.ndarray) -> float:
    """How unlike honest clients are: the largest spread in any view [views, n], as a share of its median."""
    middle, upper = quantiles(scores, counts, 0.5), quantiles(scores, counts, UPPER)
    spreads = np.where(middle > 0, (upper - middle) / np.where(middle > 0, middle, 1.0), UNLIKE)
    return float(min(max(ALIKE, spreads.max()), UNLIKE))


def verdict(
    scores: np.ndarray,
    counts: np.ndarray,
    least: float,
    noise: float | np.ndarray = 0.0,
    margin: float = MARGIN,
) -> np.ndarray:
    """[..., n]: for (above 0) and against (below 0) each client, from how alike it is to the trusted ones.

    Their spread is at least `least` times the median, and `noise` [...].
    """
    middle = quantiles(scores, counts, 0.5)
    middle, says = np.where(middle > 0, middle, 1.0)[..., None], middle[..., None] > 0
    spread = quantiles(scores, counts, UPPER)[..., None] - middle
    spread = np.maximum(np.maximum(spread, least * middle), np.asarray(noise)[..., None])
    threshold = np.maximum(0.0, middle - margin * spread)
    found: np.ndarray = says * (2 * (middle - threshold) * (scores - threshold) / spread**2)
    return found


def reversal(own: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[n]: against who turns round; others are as they were."""
    known = ~np.isnan(own)
    usual = max(quantile(own[known], counts[known], 0.5), 0.0)
    return np.minimum(2 * usual * np.where(known, own, 0.0) / OWN_SPREAD**2, 0)


def excess(lengths: Lengths, counts: np.ndarray) -> np.ndarray:
    """[..., n]: against who is too long, or sends next to nothing."""
    norms = lengths.norms
    some = quantiles(norms, counts, 0.5)[..., None] > 0
    if lengths.samples is not None:
        norms = norms / lengths.samples ** growth(norms, lengths.samples, counts)
    usual = np.where(some, quantiles(norms, counts, 0.5)[..., None], 1.0)
    ratios = np.maximum(norms / usual, 1e-30)
    beyond = np.maximum(np.maximum(ratios / lengths.limit, lengths.least / ratios), 1)
    found: np.ndarray = np.where(some, -STEEP * np.log(beyond), 0.0)
    return found


def growth(norms: np.ndarray, samples: np.ndarray, counts: np.ndarray) -> float:
    """b in [0, 1], where lengths grow as samples^b: the median slope between two clients (Theil and Sen).

    A slope counts for more the more unlike the two are in size, and the more they are trusted.
    """
    logs, sizes = np.log(np.maximum(norms, 1e-30)), np.log(samples)
    run, rise = sizes[:, None] - sizes, logs[:, None] - logs
    slopes = rise / np.where(run == 0, 1.0, run)
    often = np.triu(np.outer(counts, counts) * np.abs(run))  # each pair once
    return min(max(quantile(slopes.reshape(-1), often.reshape(-1), 0.5), 0.0), 1.0)


def copies(distances: np.ndarray) -> np.ndarray:
    """[n, n] in [0, 1]: how far two clients are copies of one another; each is one of itself."""
    n = len(distances)
    apart = np.where(np.eye(n) > 0, np.inf, distances)
    within = np.sort(apart, 1)[:, (n - 2) // 2] if n > 1 else apart[:, 0]  # half of the others
    usual = float(np.sort(within)[(n - 1) // 2])
    near = NEAR * usual
    if not 0 < near < np.inf:
        return np.eye(n)
    return np.where(np.eye(n) > 0, 1.0, np.maximum(1 - distances / near, 0))


def _medians(part: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[..., n]: each one's median likeness to the others."""
    return quantiles(part, counts, 0.5)


def _means(part: np.ndarray, counts: np.ndarray) -> np.ndarray:
    total = counts.sum(-1)
    found: np.ndarray = (counts * part).sum(-1) / np.where(total > 0, total, 1.0)
    return found
