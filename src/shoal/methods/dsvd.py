"""DSVD-FL: clients count by how alike their updates are, seen through their singular values and vectors.

Dynamic SVD-Enhanced Approach for Federated Learning, submitted to ICLR 2025 and withdrawn, openreview
7TNfxnX3h9. D_i = v_i - w_t is the update of client i, U_i, s_i, V_i its decomposition (eq. 4).

    client i:  trains to v_i; p_i = F_i(w_t) - F_i(v_i)                 (eq. 10) -> `client_training`
               sends U, s, V cut to rank k_i                            -> `codecs.low_rank.LowRank`
    server:    S = a1 S_v + a2 S_s + a3 S_l                             (eq. 5)  -> `aggregators.similarity`
               g_i ~ exp(mean_j S_ij)                                   (eqs. 6, 7) -> `aggregators.dsvd`
               w <- w + sum_i g_i D_i                                   (eq. 3)  -> `aggregators.dsvd`
               k_i + d if p_i is high, k_i - d if it is low             (eqs. 8, 9) -> `next_shares`

Departures: the paper decomposes a matrix with as many rows as the model has parameters, which nobody can
hold; here each matrix of the model is decomposed. tr(U_i^T U_j) depends on signs that nothing fixes;
`form = "invariant"` does not. S_s and S_l are divided by the norms, so that they do not grow with the
learning rate, and there is a temperature; `literal = true` keeps them raw as in the paper, whose own is 1.
Weights that adapt to what is seen are ours (`aggregators.dsvd`); `adaptive = false` is the paper's softmax.
A rank is a share of the largest one, the same for all matrices of a client; it starts at a half, d is a
sixteenth, and high and low are beyond the quartiles of the round. The paper's server averages the full v_i,
which clients send beside the factors; here the cut updates are all that travels, or with
`aggregate = "full"` the full ones. Factors are only a claim: the server checks that they are singular
vectors and values, and decomposes by itself what was not sent as such. Buffers are averaged with the same
weights. The paper's theorem has a wrong sign and no proof of its last step; nothing here relies on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from shoal.aggregators.aggregator import Weighting, by_client, moved
from shoal.aggregators.averaging import client_weight
from shoal.aggregators.dsvd import Evidence, Similarity
from shoal.aggregators.matrix import UpdateMatrix
from shoal.aggregators.similarity import Form
from shoal.codecs.low_rank import Cut, LowRank, restored
from shoal.core.data import Data
from shoal.core.gate import Like
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.training import Course, Start, Training
from shoal.core.types import Cohort, Context, Memory, Metrics, Moment, Reply, Setting, Weights
from shoal.parts.factors import Factors, full_rank, is_matrix, rank_of
from shoal.parts.losses import mean_loss
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd

START = Similarity.rank  # of the largest rank
STEP = 1 / 16  # by which a rank grows and shrinks


class DSVDState(NamedTuple):
    """What the server remembers."""

    model: Weights
    evidence: Evidence
    server: Any
    shares: Mapping[int, float]  # of the largest rank, by client, for those who took part


class DSVDReply(NamedTuple):
    """What a client returns."""

    update: Weights
    score: Tensor  # [] float64: how much training lowered its own loss


class DSVDReceived(NamedTuple):
    """The same, with its matrices whole again."""

    update: Weights
    score: Tensor
    factors: Mapping[str, Factors]  # of those that came as such


class DSVDAcc(NamedTuple):
    """The fold."""

    updates: UpdateMatrix
    scores: Mapping[int, float]
    factors: Mapping[int, Mapping[str, Factors]]  # by client: what its update is the product of


@dataclass(frozen=True)
class DSVD(Training):
    """Weighs clients by the SVD similarity of their updates, truncated to a rank for each client."""

    alpha1: float = Similarity.alpha1
    alpha2: float = Similarity.alpha2
    alpha3: float = Similarity.alpha3
    temperature: float = Similarity.temperature
    aggregate: Literal["truncated", "full"] = "truncated"
    form: Form = Similarity.form
    literal: bool = Similarity.literal
    adaptive: bool = Similarity.adaptive
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "uniform"
    terms: tuple[Term, ...] = ()
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        self._rule()  # refuses bad values at once

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
        return {"update": sent.model, "score": Like((), torch.float64)}

    def begin(self, state: DSVDState, cohort: Cohort) -> DSVDAcc:
        """See `Method`."""
        return DSVDAcc(UpdateMatrix.empty(state.model, cohort), {}, {})

    def fold(self, acc: DSVDAcc, client: int, sent: Any, reply: Reply) -> DSVDAcc:
        """See `Method`."""
        weight, payload = client_weight(self.weights, reply), reply.payload
        updates = acc.updates.add(client, sent.model, payload.update, weight)
        factors = payload.factors if sent.model is acc.updates.model else {}  # else its row is another
        return DSVDAcc(
            updates, {**acc.scores, client: float(payload.score)}, {**acc.factors, client: factors}
        )

    def finish(self, task: Task, state: DSVDState, acc: DSVDAcc, moment: Moment) -> tuple[DSVDState, Metrics]:
        """See `Method`."""
        came = acc.updates.arrived()
        if not came.ids:
            return state, {}
        shares = [state.shares.get(client, START) for client in came.ids]
        claims = [acc.factors[client] for client in came.ids]
        decision = self._rule().judged(state.evidence, came, shares, claims)
        step = came.step(decision.step)
        kept, params = self.server.step(state.server, step.params)
        scores = torch.tensor([acc.scores[client] for client in came.ids], dtype=torch.float64)
        after = dict(zip(came.ids, next_shares(shares, scores), strict=True))
        metrics = {"weights": by_client(came.ids, decision.weights), "ranks": _ranks(came, shares)}
        model = moved(state.model, step._replace(params=params))
        return DSVDState(model, decision.state, kept, {**state.shares, **after}), metrics

    def client_training(
        self, task: Task, memory: Memory, message: Any, data: Data, context: Context
    ) -> Course:
        """See `Training`."""
        before = mean_loss(task, message.model, data)
        trained = yield Start(message.model, self.terms)
        update = trained.update(message.model)
        score = before - mean_loss(task, trained.weights, data)  # eq. 10
        return memory, Reply(DSVDReply(update, score), data.weight, {"train_loss": trained.loss})

    def upload(self, reply: Reply, setting: Setting) -> Reply:
        """See `Method`."""
        if self.aggregate == "full":
            return reply
        return reply._replace(payload=LowRank(START).encode(reply.payload, setting=setting)[0].content)

    def received(self, reply: Reply, sent: Any) -> Reply:
        """See `Method`."""
        params, whole = reply.payload.update.params, restored(reply.payload, sent.model)
        factors = {name: value.factors for name, value in params.items() if isinstance(value, Cut)}
        return reply._replace(payload=DSVDReceived(whole.update, whole.score, factors))


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
    """[n] float64, sum 1: how much each of a round's updates counts, with nothing remembered."""
    rule = Similarity(alpha1, alpha2, alpha3, temperature, form, literal, adaptive)
    together = {name: torch.stack([update[name] for update in updates]) for name in updates[0]}
    past = torch.zeros(len(updates), dtype=torch.float64)
    return rule.weigh(together, [rule.rank] * len(updates), past)[0]


def next_shares(shares: Sequence[float], scores: Tensor) -> list[float]:
    """The ranks of the next round, as shares of the largest."""
    low, high = (float(scores.quantile(level)) for level in (0.25, 0.75))
    moves = [STEP * ((score > high) - (score < low)) for score in scores.tolist()]  # eqs. 8, 9
    return [min(max(share + move, 0.0), 1.0) for share, move in zip(shares, moves, strict=True)]


def _ranks(came: UpdateMatrix, shares: Sequence[float]) -> dict[int, list[int]]:
    """The rank of each matrix, by client."""
    largest = [full_rank(value) for value in came.model.params.values() if is_matrix(value)]
    return {
        client: [rank_of(share, rank) for rank in largest]
        for client, share in zip(came.ids, shares, strict=True)
    }
