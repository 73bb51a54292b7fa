"""DSVD-FL: clients count by how alike their updates are, seen through their singular values and vectors.

Dynamic SVD-Enhanced Approach for Federated Learning, submitted to ICLR 2025 and withdrawn, openreview
7TNfxnX3h9. D_i = v_i - w_t is the update of client i, U_i, s_i, V_i its decomposition (eq. 4).

    client i:  trains to v_i; p_i = F_i(w_t) - F_i(v_i)                 (eq. 10) -> `DSVD.client_update`
               sends U, s, V cut to rank k_i                            -> `parts.factors.compressed`
    server:    S = a1 S_v + a2 S_s + a3 S_l                             (eq. 5)  -> `parts.similarity`
               g_i ~ exp(mean_j S_ij)                                   (eqs. 6, 7) -> `parts.trust`
               w <- w + sum_i g_i D_i                                   (eq. 3)  -> `parts.trust.Similarity`
               k_i + d if p_i is high, k_i - d if it is low             (eqs. 8, 9) -> `next_shares`

Departures: the paper decomposes a matrix with as many rows as the model has parameters, which nobody can
hold; here each matrix of the model is decomposed. tr(U_i^T U_j) depends on signs that nothing fixes;
`form = "invariant"` does not. S_s and S_l are divided by the norms, so that they do not grow with the
learning rate, and there is a temperature; `literal = true` keeps them raw as in the paper, whose own is 1.
Weights that adapt to what is seen are ours, see `parts.trust`; `adaptive = false` is the paper's softmax. A
rank is a share of the largest one, the same for all matrices of a client; it starts at a half, d is a
sixteenth, and high and low are beyond the quartiles of the round. The paper's server averages the full v_i,
which clients send beside the factors; here the cut updates are all that travels, or with
`aggregate = "full"` the full ones. The server decomposes what it got by itself, because factors are only a
claim. Buffers are averaged with the same weights. The paper's theorem has a wrong sign and no proof of its
last step; nothing here relies on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from shoal.core.data import Data
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.types import Cohort, Context, Memory, Metrics, Reply, Setting, Weights
from shoal.parts.aggregators import Weighting, client_weight
from shoal.parts.factors import compressed, full_rank, is_matrix, rank_of, restored
from shoal.parts.gathering import Gathered, by_client
from shoal.parts.local import Sgd
from shoal.parts.losses import mean_loss
from shoal.parts.similarity import Form
from shoal.parts.training import Training
from shoal.parts.trust import Evidence, Similarity

START = Similarity.rank  # of the largest rank
STEP = 1 / 16  # by which a rank grows and shrinks


class DSVDState(NamedTuple):
    """What the server remembers."""

    model: Weights
    evidence: Evidence
    shares: Mapping[int, float]  # of the largest rank, by client, for those who took part


class DSVDReply(NamedTuple):
    """What a client returns."""

    update: Weights
    score: Tensor  # [] float64: how much training lowered its own loss


class DSVDAcc(NamedTuple):
    """The fold."""

    gathered: Gathered
    scores: Mapping[int, float]


@dataclass(frozen=True)
class DSVD(Training):
    """Weighs clients by the likeness of their updates, and cuts these to the rank each has earned."""

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

    def __post_init__(self) -> None:
        self._rule()  # refuses bad values at once

    def _rule(self) -> Similarity:
        return Similarity(
            self.alpha1, self.alpha2, self.alpha3, self.temperature, self.form, self.literal, self.adaptive
        )

    def init(self, task: Task, key: Key) -> DSVDState:
        """See `Method`."""
        model = task.init(key)
        return DSVDState(model, self._rule().init(model), {})

    def legs(self, state: DSVDState, cohort: Cohort) -> tuple[Cohort, ...]:
        """See `Method`."""
        if self.aggregate == "full":
            return (cohort,)
        shares = tuple(state.shares.get(client, START) for client in cohort.ids)
        return (cohort._replace(settings={**cohort.settings, "rank": shares}),)

    def begin(self, state: DSVDState, cohort: Cohort) -> DSVDAcc:
        """See `Method`."""
        return DSVDAcc(Gathered.empty(state.model, cohort), {})

    def fold(self, acc: DSVDAcc, client: int, sent: Any, reply: Reply) -> DSVDAcc:
        """See `Method`."""
        update = restored(reply.payload.update, acc.gathered.model.params)
        gathered = acc.gathered.add(client, sent.model, update, client_weight(self.weights, reply))
        return DSVDAcc(gathered, {**acc.scores, client: float(reply.payload.score)})

    def finish(self, task: Task, state: DSVDState, acc: DSVDAcc, key: Key) -> tuple[DSVDState, Metrics]:
        """See `Method`."""
        came = acc.gathered.arrived()
        shares = [state.shares.get(client, START) for client in came.ids]
        evidence, outcome = self._rule().judged(state.evidence, came, shares)
        scores = torch.tensor([acc.scores[client] for client in came.ids], dtype=torch.float64)
        after = dict(zip(came.ids, next_shares(shares, scores), strict=True))
        metrics = {"weights": by_client(came.ids, outcome.weights), "ranks": _ranks(came, shares)}
        return DSVDState(came.moved(outcome.step), evidence, {**state.shares, **after}), metrics

    def client_update(
        self, task: Task, memory: Memory, message: Any, data: Data, context: Context
    ) -> tuple[Memory, Reply]:
        """See `Method`."""
        before = mean_loss(task, message.model, data)
        trained = self.local.train(task, message.model, data, context)
        update = trained.update(message.model)
        score = before - mean_loss(task, trained.weights, data)  # eq. 10
        return memory, Reply(DSVDReply(update, score), data.weight, {"train_loss": trained.loss})

    def upload(self, reply: Reply, setting: Setting) -> Reply:
        """See `Method`."""
        assert reply.weight is not None
        share = 1.0 if self.aggregate == "full" else setting.get("rank", START)
        update = compressed(reply.payload.update, share, stacked=bool(reply.weight.dim()))
        return reply._replace(payload=reply.payload._replace(update=update))


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


def _ranks(came: Gathered, shares: Sequence[float]) -> dict[int, list[int]]:
    """The rank of each matrix, by client."""
    largest = [full_rank(value) for value in came.model.params.values() if is_matrix(value)]
    return {
        client: [rank_of(share, rank) for rank in largest]
        for client, share in zip(came.ids, shares, strict=True)
    }
