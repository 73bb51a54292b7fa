"""DSVD-FL's Theorem 1: strongly convex losses, a rate of 1 / T, and a floor from truncation.

Client i has the loss F_i(w) = tr((w - a_i)^T H (w - a_i)) / 2 of a matrix w, with the eigenvalues of H
between mu and L. As in the paper's eq. 2, it takes one step along a noisy gradient in each round, with the
theorem's step size 2 / (mu (t + 1)). The theorem (eq. 11) bounds the remaining gap F - F* after T rounds by

    2 L / (mu^2 T) (4 L G^2 / mu^2 + mu ||w_0 - w*||^2) + 2 L e / mu

where G is the largest gradient and e the largest error of a truncated update.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.aggregators.dsvd import Similarity
from shoal.aggregators.matrix import UpdateMatrix
from shoal.core.key import Key
from shoal.core.types import Weights
from shoal.parts.factors import factored, rank_of
from shoal.study.reproduce.experiment import (
    ComparisonTable,
    Experiment,
    Findings,
    PaperNumber,
    RunJobs,
    Scale,
)

SUMMARY = "Theorem 1: strongly convex losses, rate 1 / T, and a floor from truncation"
REFERENCE = "Dynamic SVD-Enhanced Approach for Federated Learning, openreview 7TNfxnX3h9"

SHAPE, CLIENTS = (12, 10), 10
LOW, HIGH = 1.0, 4.0  # mu and L
NOISE = 0.3  # standard deviation for each entry of a gradient
RULES: Mapping[str, Similarity | None] = {
    "uniform": None,
    "as printed": Similarity(form="literal", literal=True, temperature=1.0),
    "as built": Similarity(),
}
APART = {"alike": 0.0, "unlike": 1.0}  # spread of the clients' optima
SHARES = {"full rank": 1.0, "half": 0.5, "a fifth": 0.2}


class Course(NamedTuple):
    """The result of one run."""

    gaps: list[float]  # F - F*, after each round
    bound: float  # the theorem's, after the last round


@dataclass(frozen=True)
class Problem:
    """The clients' losses."""

    optima: Tensor  # [clients, rows, columns] float64
    curves: Tensor  # H [rows, rows]

    @classmethod
    def drawn(cls, apart: float, key: Key) -> Problem:
        """Draw optima around a common one, and H with eigenvalues from mu to L in random directions."""
        draw = key.torch()
        shared = torch.randn(SHAPE, generator=draw, dtype=torch.float64)
        own = torch.randn((CLIENTS, *SHAPE), generator=draw, dtype=torch.float64)
        turn, _ = torch.linalg.qr(torch.randn((SHAPE[0], SHAPE[0]), generator=draw, dtype=torch.float64))
        values = torch.linspace(LOW, HIGH, SHAPE[0], dtype=torch.float64)
        return cls(shared + apart * own, (turn * values) @ turn.T)

    def gap(self, at: Tensor) -> float:
        """F - F*, where F is the mean of all losses; its optimum is the mean of the clients' optima."""
        away = at - self.optima.mean(0)
        return float((away * (self.curves @ away)).sum() / 2)


def course(problem: Problem, rule: Similarity | None, share: float, rounds: int, key: Key) -> Course:
    """Run gradient descent from w = 0."""
    at, draw = torch.zeros(SHAPE, dtype=torch.float64), key.fold("noise").torch()
    ids, rank = tuple(range(CLIENTS)), rank_of(share, min(SHAPE))
    state = None if rule is None else rule.init(_model(at))
    gaps, steepest, worst = [], 0.0, 0.0
    for t in range(rounds):
        noise = NOISE * torch.randn((CLIENTS, *SHAPE), generator=draw, dtype=torch.float64)
        gradients = problem.curves @ (at - problem.optima) + noise
        updates = (-2 / (LOW * (t + 1)) * gradients).float()  # eq. 2
        cut = torch.stack([factored(update, rank).dense() for update in updates])
        steepest = max(steepest, float(gradients.square().sum((1, 2)).max()))
        worst = max(worst, float((updates - cut).double().square().sum((1, 2)).max().sqrt()))
        if rule is None or state is None:
            step = cut.double().mean(0)
        else:
            rows, equal = cut.reshape(CLIENTS, -1).contiguous(), torch.ones(CLIENTS, dtype=torch.float64)
            given = UpdateMatrix(_model(at), ids, rows, equal, {}, {})
            decision = rule.judged(state, given, [share] * CLIENTS, given.weights, key.fold("round", t))
            state, step = decision.state, decision.step.reshape(SHAPE)
        at = at + step
        gaps.append(problem.gap(at))
    start = float(problem.optima.mean(0).square().sum())
    rate = 2 * HIGH / (LOW**2 * rounds) * (4 * HIGH * steepest / LOW**2 + LOW * start)
    return Course(gaps, rate + 2 * HIGH * worst / LOW)  # eq. 11


def theorem(rounds: int, seeds: int, run_jobs: RunJobs) -> Findings:
    """The gap F - F* after a tenth of the rounds and after all of them, and the exponent between the two."""
    tables = []
    for name, apart in APART.items():
        cells = []
        for rule, chosen in RULES.items():
            for cut, share in SHARES.items():
                keys = [Key.from_seed(seed) for seed in range(seeds)]
                found = [course(Problem.drawn(apart, k.fold(name)), chosen, share, rounds, k) for k in keys]
                cells += _cells(f"{rule}, {cut}", found, rounds)
        tables.append(ComparisonTable(f"Clients {name}: F - F*", cells, "weights, rank", 4))
    facts = {"matrix": f"{SHAPE[0]} x {SHAPE[1]}", "clients": str(CLIENTS), "mu, L": f"{LOW:g}, {HIGH:g}"}
    return Findings(tables, notes=[" ".join(note.split()) for note in NOTES], facts=facts)


def _cells(row: str, found: list[Course], rounds: int) -> list[PaperNumber]:
    first, last = (sum(each.gaps[t - 1] for each in found) / len(found) for t in (rounds // 10, rounds))
    bound = sum(each.bound for each in found) / len(found)
    ours = {
        f"T = {rounds // 10}": first,
        f"T = {rounds}": last,
        "exponent": math.log10(last / first),
        "eq. 11": bound,
    }
    return [PaperNumber(row, column, None, value) for column, value in ours.items()]


NOTES = (
    """The exponent is that of T between the first two columns: -1 is the theorem's rate, 0 a floor.""",
    """The last column is the theorem's bound, with the largest gradient and the largest error of a truncated
    update over the whole run. Both come from the first rounds, whose steps are the longest; late errors are
    as small as late steps, and still add up to the same floor, because a truncated gradient is not zero on
    average where the gradient is. So the theorem's floor is not the one that is reached.""",
    """The theorem's F is the mean over all clients. With weights that are not uniform, the optimum is a
    different one, and training never comes closer to F's; no term of the theorem covers this.""",
)

LONG = partial(theorem, 5000, 3)
SCALES: Mapping[Scale, Callable[[RunJobs], Findings]] = {
    "quick": partial(theorem, 200, 1),
    "machine": LONG,
    "paper": LONG,
}
EXPERIMENT = Experiment(SUMMARY, REFERENCE, SCALES)


def _model(at: Tensor) -> Weights:
    return Weights({"w": at.float()}, {})
