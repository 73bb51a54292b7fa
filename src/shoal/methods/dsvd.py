"""DSVD-FL: weights clients by the similarity of their updates, measured on singular values and vectors.

Dynamic SVD-Enhanced Approach for Federated Learning, submitted to ICLR 2025 and withdrawn, openreview
7TNfxnX3h9. D_i = v_i - w_t is the update of client i, and U_i, s_i, V_i are its SVD (eq. 4).

    client i:  trains to v_i; sends D_i as U, s, V cut to rank k_i      -> `codecs.low_rank.LowRank`
    server:    S = a1 S_v + a2 S_s + a3 S_l                          (eq. 5)  -> `aggregators.dsvd_similarity`
               g_i ~ exp(mean_j S_ij)                                   (eqs. 6, 7) -> `aggregators.dsvd`
               w <- w + sum_i g_i D_i                                   (eq. 3)  -> `aggregators.dsvd`
               k_i + d if p_i is high, k_i - d if it is low             (eqs. 8, 9) -> `next_shares`
               p_i = F_i(w_t) - F_i(v_i), as client i says              (eq. 10) -> `client_training`

Departures:
- The paper decomposes a matrix with as many rows as the model has parameters, which does not fit into memory;
  here each matrix of the model is decomposed separately.
- tr(U_i^T U_j) depends on the signs of singular vectors, which are arbitrary; `form = "invariant"` does not.
- S_s and S_l are divided by the norms, so that they do not grow with the learning rate, and the softmax has a
  temperature; `literal = true` keeps them raw as in the paper, where the temperature is 1.
- Evidence that adds up over the rounds is ours (`aggregators.dsvd_trust`); `adaptive = false` is the paper's
  softmax.
- A rank is a share of the full rank, the same for all matrices of a client; it starts at a half, d is a
  sixteenth, and high and low mean beyond the quartiles of the round.
- A p_i that the client reports cannot be checked: by default p_i is the client's share of the step, which the
  server sees, the rank of an untrusted client does not rise, and no rank falls below a half;
  `score = "claimed"` is the paper's, down to rank 1.
- Updates are compared at the smallest rank of the round, so that no client gains by sending more directions.
- A large matrix of rank k_i or less is not truncated, and travels as a product of some of its rows.
- The paper's server averages the full v_i, which clients send in addition to the factors; here only the
  truncated updates travel, or with `aggregate = "full"` only the full ones. Buffers are averaged with the
  same weights.
- The paper's theorem has a wrong sign and no proof of its last step; nothing here relies on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.aggregators.aggregator import Weighting, moved
from shoal.aggregators.alignment import SIGNS
from shoal.aggregators.averaging import client_weight
from shoal.aggregators.dsvd import Similarity
from shoal.aggregators.dsvd_evidence import Evidence
from shoal.aggregators.dsvd_similarity import Form
from shoal.aggregators.dsvd_trust import nothing_known
from shoal.aggregators.matrix import UpdateMatrix
from shoal.codecs.low_rank import LowRank, restored
from shoal.core.data import Data
from shoal.core.gate import Like
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.training import ComputeLoss, Course, Start, Training
from shoal.core.types import Cohort, Context, Memory, Metrics, ModelUpdate, Moment, Reply, Setting, Weights
from shoal.parts.factors import full_rank, is_matrix, rank_of
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd

START = Similarity.rank  # initial rank, as a share of the full rank
STEP = 1 / 16  # by which a rank grows or shrinks
FLOOR = 0.5  # the smallest rank if the server computes the score
Score = Literal["seen", "claimed"]


class DSVDState(NamedTuple):
    """The server state."""

    model: Weights
    evidence: Evidence
    server: Any
    shares: Mapping[int, float]  # client -> rank as a share of the full one, for clients that took part


class DSVDReply(NamedTuple):
    """The payload of a client that is asked for its score."""

    update: Weights
    score: Tensor  # [] float64: how much training lowered its own loss


class DSVDAcc(NamedTuple):
    """The accumulator."""

    updates: UpdateMatrix
    samples: Mapping[int, float]  # sample counts, as declared
    scores: Mapping[int, float]  # scores as claimed, if clients are asked for them


@dataclass(frozen=True)
class DSVD(Training):
    """Weights clients by the SVD similarity of their updates, truncated to a per-client rank."""

    alpha1: float = Similarity.alpha1
    alpha2: float = Similarity.alpha2
    alpha3: float = Similarity.alpha3
    temperature: float = Similarity.temperature
    aggregate: Literal["truncated", "full"] = "truncated"
    form: Form = Similarity.form
    literal: bool = Similarity.literal
    adaptive: bool = Similarity.adaptive
    score: Score = "seen"
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "uniform"
    terms: tuple[Term, ...] = ()
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        self._rule()  # rejects invalid values at once

    def _rule(self) -> Similarity:
        return Similarity(
            self.alpha1, self.alpha2, self.alpha3, self.temperature, self.form, self.literal, self.adaptive
        )

    def init(self, task: Task, key: Key) -> DSVDState:
        """See `Method`."""
        model = task.init(key)
        return DSVDState(model, self._rule().init(model), self.server.init(model.params), {})

    def legs(self, state: DSVDState, cohort: Cohort, moment: Moment) -> tuple[Cohort, ...]:
        """See `Method`."""
        if self.aggregate == "full":
            return (cohort,)
        shares = tuple(state.shares.get(client, START) for client in cohort.ids)
        return (cohort._replace(settings={**cohort.settings, "rank": shares}),)

    def expects(self, task: Task, sent: Any) -> Mapping[str, Any]:
        """See `Method`."""
        score = {"score": Like((), torch.float64)} if self.score == "claimed" else {}
        return {"update": sent.model, **score}

    def begin(self, state: DSVDState, cohort: Cohort) -> DSVDAcc:
        """See `Method`."""
        return DSVDAcc(UpdateMatrix.empty(state.model, cohort), {}, {})

    def fold(self, acc: DSVDAcc, client: int, sent: Any, reply: Reply) -> DSVDAcc:
        """See `Method`."""
        weight, payload = client_weight(self.weights, reply), reply.payload
        claim = {client: float(payload.score)} if self.score == "claimed" else {}
        updates = acc.updates.add(client, sent.model, payload.update, weight)
        samples = {**acc.samples, client: client_weight("samples", reply)}
        return DSVDAcc(updates, samples, {**acc.scores, **claim})

    def finish(self, task: Task, state: DSVDState, acc: DSVDAcc, moment: Moment) -> tuple[DSVDState, Metrics]:
        """See `Method`."""
        came = acc.updates.arrived()
        if not came.ids:
            return state, {}
        shares = [state.shares.get(client, START) for client in came.ids]
        samples = torch.tensor([acc.samples[client] for client in came.ids], dtype=torch.float64)
        decision = self._rule().judged(state.evidence, came, shares, samples, moment.key)
        outcome = decision.outcome(came)
        kept, params = self.server.step(state.server, outcome.step.params)
        if self.score == "claimed":
            scores = torch.tensor([acc.scores[client] for client in came.ids], dtype=torch.float64)
            after = next_shares(shares, scores, 0.0)
        else:
            assert decision.pulls is not None
            after = next_shares(shares, decision.pulls, FLOOR)
        metrics = {"weights": outcome.weights, "ranks": _ranks(came, shares), **outcome.metrics}
        model = moved(state.model, outcome.step._replace(params=params))
        ranks = {**state.shares, **dict(zip(came.ids, after, strict=True))}
        return DSVDState(model, outcome.state, kept, ranks), metrics

    def client_training(
        self, task: Task, memory: Memory, message: Any, data: Data, context: Context
    ) -> Course:
        """See `Training`."""
        asked = self.score == "claimed"
        before = (yield ComputeLoss(message.model)) if asked else None
        trained = yield Start(message.model, self.terms, only_update=not asked)
        payload: Any = ModelUpdate(trained.update(message.model))
        if before is not None:
            score = before - (yield ComputeLoss(trained.weights))  # eq. 10
            payload = DSVDReply(payload.update, score)
        return memory, Reply(payload, data.weight, {"train_loss": trained.loss})

    def upload(self, reply: Reply, setting: Setting) -> Reply:
        """See `Method`."""
        if self.aggregate == "full":
            return reply
        return reply._replace(payload=LowRank(START).encode(reply.payload, setting=setting)[0].content)

    def received(self, reply: Reply, sent: Any) -> Reply:
        """See `Method`."""
        return reply._replace(payload=restored(reply.payload, sent.model))


def weights(
    updates: Sequence[Mapping[str, Tensor]],
    *,
    alpha1: float = Similarity.alpha1,
    alpha2: float = Similarity.alpha2,
    alpha3: float = Similarity.alpha3,
    temperature: float = Similarity.temperature,
    form: Form = Similarity.form,
    literal: bool = Similarity.literal,
    adaptive: bool = Similarity.adaptive,
) -> Tensor:
    """[n] float64, sum 1: the weight of each update of a round, without evidence from earlier rounds."""
    rule = Similarity(alpha1, alpha2, alpha3, temperature, form, literal, adaptive)
    together = {name: torch.stack([update[name] for update in updates]) for name in updates[0]}
    if not rule.collects:
        return rule.softmax(together, [rule.rank] * len(updates))
    past = nothing_known(len(updates))
    return rule.weigh(together, rule.rank, past, torch.full_like(past[0], torch.nan), SIGNS)[0]


def next_shares(shares: Sequence[float], scores: Tensor, floor: float) -> list[float]:
    """The ranks of the next round, as shares of the full rank."""
    last = len(scores) - 1
    low, high = np.interp((0.25 * last, 0.75 * last), range(last + 1), np.sort(scores.numpy())).tolist()
    moves = [STEP * ((score > high) - (score < low)) for score in scores.tolist()]  # eqs. 8, 9
    return [min(max(share + move, floor), 1.0) for share, move in zip(shares, moves, strict=True)]


def _ranks(came: UpdateMatrix, shares: Sequence[float]) -> dict[int, list[int]]:
    """The rank of each matrix, by client."""
    largest = [full_rank(value) for value in came.model.params.values() if is_matrix(value)]
    return {
        client: [rank_of(share, rank) for rank in largest]
        for client, share in zip(came.ids, shares, strict=True)
    }
