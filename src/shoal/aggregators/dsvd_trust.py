"""Evidence against clients, and the weights that follow from it.

A view is a likeness S_ij between all clients that is 0 for clients with nothing in common. In each round

    l_i = sum_j g_j S_ij / sum_j g_j over the others, those who are copies of i left out
    m, s = the median of l and its spread above the median, among those who are trusted
    e_i = 2 (m - t) (l_i - t) / s^2,   t = max(0, m - 4 s)                                -> `verdict`

e_i is a log likelihood ratio: how much more likely l_i is for an honest client, around m, than for a client
centred as far on the other side of t. Where clients have little in common (m is small), it is small, and
tells nothing either way. There is never evidence against a client whose l_i is at least t.

How much honest clients differ is measured in the view in which they differ most: s is at least m times that
view's s / m, limited to 0.15 to 0.25 (`unlike`). From 0.25 on t is 0, and only clients that oppose the others
are suspected, not clients that have nothing in common with them. A client whose labels differ from the rest
opposes them in part, round after round. Mild evidence therefore counts as nothing, and does not add up:

    E_i = min(0, E_i + e_i), where e_i is at most 1, an e_i < 0 has 4 added up to 0, and the least is -12
    g_i ~ min(1, exp(E_i + 5)) / c_i, with c_i how many copies of i there are

Trust is lost fast and regained slowly.

While most clients are new, the model is young, and honest clients agree more than they ever will again. In
these rounds mild evidence counts too, and only clients with no evidence at all against them fully serve as
reference (`mostly_new`). Otherwise several attackers could widen the spread so far that all evidence against
them is mild.

Evidence does not fade: it adds up in informative rounds, and uninformative rounds leave it unchanged. No
client gains by being more central than others: honest clients have equal weight.

- Copies count once. Honest updates come from different samples in different orders, and are never closer
  together than a fraction of their usual distance. The usual distance is that within which half of the
  clients find half of the others, so a majority of equal updates does not count as copies.
- Where clients are alike, each differs from the mean by chance, independently of the others. Several clients
  that differ from the mean in the same way have a common reason, such as a backdoor, or, in the last layer
  alone, labels that they all falsify -> `company`. This evidence has an account of its own: E_i above and
  this account, both at most 0, are added for the weight. Later in training all clients look unlike, and
  nothing more is found; but evidence in one account never restores trust lost in the other.
- A client that agreed with the others and then turns against its own past is caught by that -> `reversal`.
- A client is suspected if its update is far longer than those of trusted clients with as many samples, or
  next to nothing -> `excess`.

All of this computes with few numbers, hundreds of times per round, so it is in NumPy, whose calls cost less
than torch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.kernels.quantile import quantile, quantiles

MARGIN = 4.0  # this many spreads below the median are not unusual
TOGETHER = 3.0  # the same, for how alone a client is in its difference from the mean
ALIKE, UNLIKE = 0.08, 0.25  # smallest spread over the median: where clients are alike, and where they are not
LEAST_SPREAD = 0.15  # smallest spread of likeness, over the median
SAME = 1e-9  # of an update's squared norm: a smaller difference from the mean counts as none
OWN_SPREAD = 0.15  # spread of an honest client's agreement with its earlier updates
WORST, BEST = -12.0, 1.0  # limits of the evidence of one round
MILD = 4.0  # evidence against a client that counts as nothing: being different is not an attack
FEWEST = 6  # the smallest cohort in which clients are checked for company
SLACK = 5.0  # total evidence against a client that does not lower its weight yet
NEAR = 0.5  # of the usual distance: updates closer than this count partly as copies
STEPS = 5  # iterations: weights follow from evidence, and evidence from weights
UPPER = 0.84  # the quantile at which a normal variable is one deviation above its median
STEEP = 40.0  # evidence against an update that is e times as long as the limit


class Views(NamedTuple):
    """The likeness of clients in several views."""

    likeness: np.ndarray  # [views, clients, clients] float64; 0: nothing in common
    say: np.ndarray  # [views]: the weight of each view
    noise: np.ndarray  # [views]: the smallest spread assumed of honest clients, in absolute terms


class Lengths(NamedTuple):
    """The norms of updates, or of all their tensors."""

    norms: np.ndarray  # [clients] or [tensors, clients] float64
    limit: float  # in usual norms: a client above it is suspected
    least: float = 0.0  # in usual norms: a client below it is suspected, too
    samples: np.ndarray | None = None  # [clients]: more samples mean more steps, and allow longer updates


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
    """[n] float64, sum 1: the weights; and [2, n]: the evidence, including the past one (`nothing_known`).

    `apart` [n, n] are distances, `cosines` are those of whole updates and of parts of them, `size` is the
    weight of lengths, `own` [n] is the agreement of each update with the same client's earlier ones (NaN if
    there are none), and `strict` in [0, 1] scales all evidence.
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
        # agreement with the others excuses neither length nor reversal nor company
        long = np.min(np.vstack([excess(length, weights) for length in lengths]), 0)
        new = np.maximum(new + size * long + reversal(own, weights), WORST)
        told = np.stack([new, _in_company(cosines, others, weights, differ)])
        evidence = np.minimum(past + strict * told, 0)
        weights = once * np.exp(np.minimum(evidence.sum(0) + slack, 0))
        if step and np.array_equal(weights, before):  # converged
            break
    weights = once * np.exp(np.minimum(evidence.sum(0) + SLACK, 0))
    return weights / weights.sum(), evidence


def nothing_known(clients: int) -> Tensor:
    """[2, clients] float64: no evidence, neither from likeness, length and reversal nor from company."""
    return torch.zeros(2, clients, dtype=torch.float64)


def _in_company(cosines: Views, others: np.ndarray, counts: np.ndarray, differ: float) -> np.ndarray:
    """[n]: evidence from company, in the part of an update where it is strongest. Evidence against a client
    fades out where clients are unlike; evidence for a client, which is alone, always counts."""
    alone = 1 - company(cosines.likeness, others, counts)
    found = cosines.say[:, None] * verdict(alone, counts, ALIKE, cosines.noise, TOGETHER)
    told: np.ndarray = np.clip(np.min(found, 0), WORST / 2, BEST)
    alike = max(LEAST_SPREAD - differ, 0.0) / (LEAST_SPREAD - ALIKE)
    return np.where(told < 0, alike * told, told)


def mostly_new(own: np.ndarray) -> bool:
    """Whether most clients have no past updates to compare with."""
    return 2 * int(np.isnan(own).sum()) > len(own)


def company(cosines: np.ndarray, others: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[..., n]: the cosine between a client's difference from the trusted mean and that of others, from
    cosines [..., n, n] of updates; the second largest, so that a pair is no company, and 0 for copies, which
    are handled elsewhere.

    The mean excludes both clients that are compared. A mean that included them would be closer to trusted
    clients, and its random part would be common to all distrusted ones: these would look like company just
    because they are distrusted.
    """
    if cosines.shape[-1] < FEWEST:
        return np.zeros(cosines.shape[:-1])
    mine, theirs = counts[:, None], counts[None, :]
    pulled, own = (cosines * counts).sum(-1), cosines.diagonal(axis1=-2, axis2=-1)[..., None]
    count = counts.sum() - mine - theirs
    count = np.where(count > SAME, count, np.inf)
    along = pulled[..., None] - mine * own - theirs * cosines  # i with the sum of the other clients
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
    """How much honest clients differ: the largest spread in any view [views, n], as a share of its median."""
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
    """[..., n]: evidence for (> 0) or against (< 0) each client, from its likeness to trusted clients.

    The spread of trusted clients is at least `least` times the median, and at least `noise` [...].
    """
    middle = quantiles(scores, counts, 0.5)
    middle, says = np.where(middle > 0, middle, 1.0)[..., None], middle[..., None] > 0
    spread = quantiles(scores, counts, UPPER)[..., None] - middle
    spread = np.maximum(np.maximum(spread, least * middle), np.asarray(noise)[..., None])
    threshold = np.maximum(0.0, middle - margin * spread)
    found: np.ndarray = says * (2 * (middle - threshold) * (scores - threshold) / spread**2)
    return found


def reversal(own: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[n]: evidence against clients that turn against their own past; 0 for all others."""
    known = ~np.isnan(own)
    usual = max(quantile(own[known], counts[known], 0.5), 0.0)
    return np.minimum(2 * usual * np.where(known, own, 0.0) / OWN_SPREAD**2, 0)


def excess(lengths: Lengths, counts: np.ndarray) -> np.ndarray:
    """[..., n]: evidence against clients whose updates are too long, or next to nothing."""
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
    """b in [0, 1], where norms grow as samples^b: the median slope between two clients (Theil and Sen).

    A slope has more weight the more the two clients differ in size, and the more they are trusted.
    """
    logs, sizes = np.log(np.maximum(norms, 1e-30)), np.log(samples)
    run, rise = sizes[:, None] - sizes, logs[:, None] - logs
    slopes = rise / np.where(run == 0, 1.0, run)
    often = np.triu(np.outer(counts, counts) * np.abs(run))  # each pair once
    return min(max(quantile(slopes.reshape(-1), often.reshape(-1), 0.5), 0.0), 1.0)


def copies(distances: np.ndarray) -> np.ndarray:
    """[n, n] in [0, 1]: how far two clients are copies of each other; each is a copy of itself."""
    n = len(distances)
    apart = np.where(np.eye(n) > 0, np.inf, distances)
    within = np.sort(apart, 1)[:, (n - 2) // 2] if n > 1 else apart[:, 0]  # half of the others
    usual = float(np.sort(within)[(n - 1) // 2])
    near = NEAR * usual
    if not 0 < near < np.inf:
        return np.eye(n)
    return np.where(np.eye(n) > 0, 1.0, np.maximum(1 - distances / near, 0))


def _medians(part: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[..., n]: each client's median likeness to the others."""
    return quantiles(part, counts, 0.5)


def _means(part: np.ndarray, counts: np.ndarray) -> np.ndarray:
    total = counts.sum(-1)
    found: np.ndarray = (counts * part).sum(-1) / np.where(total > 0, total, 1.0)
    return found
