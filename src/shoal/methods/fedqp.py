"""FedQP: every client gets a different mutation of the global model, corrected towards its last step.

Weng, Xia, Li, Hu, Chen: FedQP: Towards Accurate Federated Learning using Quadratic Programming Guided
Mutation, SEKE 2024, Algorithm 1.

    delta = w_r - w_{r-1}                                           (line 12)   -> `Turn.between`
    mut_j = a random mutation of each layer, see `fedmut.py`        (line 15)   -> `Mutation.draw`
    with probability p, for each j and layer,                       (line 17)   -> `projected`, `project`
        min ||mut~ - mut||^2  s.t.  <mut~, delta> >= 0              (eq. 2)
        mut~ = mut + lambda delta                                   (eq. 4)
        lambda = max(0, -<mut, delta> / ||delta||^2)                (eq. 5, solved)
    client j:  trains from w_r + mut~_j                             (lines 19, 9) -> `Mutants`
    server:    w_{r+1} = mean of the trained models                 (line 11)   -> `aggregators.mean.Mean`

A mutation is `along * delta` plus a part orthogonal to delta, so its projection is `max(along, 0)`. With
FedMut's mutations, half of them +alpha delta and half (-1 + c) alpha delta, the mean of the models sent is
`w + m delta` with m = (alpha / 2) (p + c - p c)                                -> `effective_momentum`
So FedQP is FedMut with momentum at the server, and like any momentum it needs m < 1.

`p = "auto"` adapts p in each round by feedback, and keeps m below 1                -> `adapted`

Departures: line 19 adds the mutation to a client's model and omits the tilde; the text and the authors'
FedMut add the corrected one to the global model, and so do we. The linear term of eq. 3 is `mut~^T mut`.
Step 4 of the text has the wrong sign of delta. Eq. 2 allows right angles, though the text says acute. The
paper gives neither alpha nor p. `mutation = "gaussian"` and `"mixed"`, `granularity = "module"` and
`p = "auto"` are ours. Buffers are not mutated. In a cohort of odd size, a random client gets the model
without a mutation.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.averaging import Averaged, AveragingMethod, client_weight, client_weights
from shoal.aggregators.mean import Mean
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.types import Acc, Cohort, Metrics, ModelMessage, Moment, PerClient, Reply, Weights
from shoal.parts.mutation import (
    Granularity,
    Kind,
    Mutants,
    Mutation,
    Mutations,
    Params,
    Turn,
    layers,
    projected,
    where_moved,
)
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd

FIRST, LARGEST = 0.5, 0.85  # initial value and upper limit of the momentum of p = "auto"
NEUTRAL = 0.05  # the cosine at which this momentum stays the same
RISE, FALL = 0.05, 0.1  # how fast it responds to larger and to smaller cosines


class FedQPState(NamedTuple):
    """The server state."""

    averaged: Averaged
    before: Params  # the parameters before the last step; delta is what that step added
    norms: tuple[float, ...]  # of delta, per layer
    momentum: float  # the target of p = "auto"

    @property
    def model(self) -> Weights:
        """The global model."""
        return self.averaged.model


class QpPlan(NamedTuple):
    """The mutations of a round."""

    mutations: Mutations
    momentum: float  # the expected mean of `along`

    def metrics(self, norms: np.ndarray) -> Metrics:
        """The metrics for rounds.jsonl."""
        return {
            "active_share": float(self.mutations.active.mean()),
            "mutation_ratio": self._ratio(norms),
            "effective_momentum": self.momentum,
        }

    def push(self, acc: FedQPAcc) -> np.ndarray:
        """[layers]: the weighted mean of `along` over the replies."""
        places = [acc.cohort.ids.index(client) for client in acc.weights]
        weights = np.array(list(acc.weights.values()))
        total: np.ndarray = weights @ self.mutations.along[places] / weights.sum()
        return total

    def _ratio(self, norms: np.ndarray) -> float | None:
        """The mean of |mutation| / |delta|; None if the last step is not finite."""
        step = float(np.sqrt(norms @ norms))
        if not 0 < step < math.inf:
            return None if step else 0.0
        squares = self.mutations.along**2 + self.mutations.across**2
        return float(np.sqrt(squares @ norms**2).mean()) / step


class FedQPAcc(NamedTuple):
    """The accumulator."""

    average: Acc
    cohort: Cohort
    weights: Mapping[int, float]  # of the replies, by client


@dataclass(frozen=True)
class FedQP(AveragingMethod):
    """Sends each client a mutated model; mutations against the last step are projected with probability p."""

    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "uniform"
    alpha: float = 4.0
    acc: float = 0.0
    bound: int = 50
    p: float | Literal["auto"] = 0.3
    mutation: Kind = "fedmut"
    sigma: float = 0.5
    granularity: Granularity = "tensor"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < math.inf:
            raise SpecError(f"alpha must be >= 0, got {self.alpha:g}; 4 is usual")
        if not 0 <= self.acc <= 1:
            raise SpecError(f"acc must be in [0, 1], got {self.acc:g}; FedMut's authors use 0.3")
        if self.bound < 1:
            raise SpecError(f"bound must be at least 1, got {self.bound}; for no acceleration use acc = 0")
        if self.p != "auto" and not 0 <= self.p <= 1:
            raise SpecError(f'p must be in [0, 1], got {self.p:g}; "auto" adapts it')
        if not 0 <= self.sigma < math.inf:
            raise SpecError(f"sigma must be >= 0, got {self.sigma:g}; 0.5 is usual")

    def init(self, task: Task, key: Key) -> FedQPState:
        """See `Method`."""
        averaged = self.averaging.init(task.init(key))
        still = (0.0,) * len(layers(averaged.model.params, self.granularity))
        state = FedQPState(averaged, averaged.model.params, still, FIRST)
        _, momentum = self._odds(state, 2, 1)
        if momentum >= 1:
            warnings.warn(
                f"the effective momentum (alpha / 2) (p + c - p c) is {momentum:.3g}; at 1 or more training "
                "does not converge: use a smaller alpha, p or acc",
                stacklevel=2,
            )
        return state

    def dispatch(self, task: Task, state: FedQPState, cohort: Cohort, moment: Moment) -> ModelMessage:
        """See `Method`."""
        mutations = self._plan(state, cohort, moment).mutations
        if not (mutations.along.any() or mutations.across.any()):
            return ModelMessage(state.model)
        parts, key = layers(state.model.params, self.granularity), moment.key.fold("mutations")
        return ModelMessage(PerClient(Mutants(state.model, state.before, parts, state.norms, mutations, key)))

    def begin(self, state: FedQPState, cohort: Cohort) -> FedQPAcc:
        """See `Method`."""
        return FedQPAcc(self.averaging.begin(state.averaged, cohort), cohort, {})

    def fold(self, acc: FedQPAcc, client: int, sent: Any, reply: Reply) -> FedQPAcc:
        """See `Method`."""
        average = self.averaging.fold(acc.average, client, sent.model, reply.payload.update, reply)
        weights = {**acc.weights, client: client_weight(self.weights, reply)}
        return acc._replace(average=average, weights=weights)

    def fold_block(self, acc: FedQPAcc, clients: tuple[int, ...], sent: Any, reply: Reply) -> FedQPAcc:
        """See `Method`."""
        average = self.averaging.fold_block(acc.average, clients, sent.model, reply.payload.update, reply)
        new = dict(zip(clients, client_weights(self.weights, reply).tolist(), strict=True))
        return acc._replace(average=average, weights={**acc.weights, **new})

    def finish(
        self, task: Task, state: FedQPState, acc: FedQPAcc, moment: Moment
    ) -> tuple[FedQPState, Metrics]:
        """See `Method`."""
        if not acc.weights:
            return state, {}
        averaged, metrics = self.averaging.finish(task, state.averaged, acc.average, moment)
        plan, norms = self._plan(state, acc.cohort, moment), np.array(state.norms)
        parts = layers(averaged.model.params, self.granularity)
        turn = Turn.between(parts, averaged.model.params, state.model.params, state.before)  # line 12
        cosine = turn.cosine(norms, plan.push(acc))
        momentum = state.momentum if cosine is None else adapted(state.momentum, cosine)
        after = FedQPState(averaged, state.model.params, tuple(turn.norms.tolist()), momentum)
        return after, {**metrics, **plan.metrics(norms)}

    def _plan(self, state: FedQPState, cohort: Cohort, moment: Moment) -> QpPlan:
        """The mutations of a round; always the same for the same arguments."""
        key, clients = moment.key.fold("mutations"), len(cohort.ids)
        p, momentum = self._odds(state, clients, moment.round)
        backward = self._acceleration(moment.round) - 1
        drawn = self._shape.draw(clients, self._sizes(state), backward, key)
        coins = key.fold("coins").numpy().random(drawn.along.shape) < p
        return QpPlan(where_moved(projected(drawn, coins), np.array(state.norms)), momentum)

    def _odds(self, state: FedQPState, clients: int, round: int) -> tuple[float, float]:
        """p, and the effective momentum that results."""
        c, paired = self._acceleration(round), clients // 2 * 2 / max(clients, 1)
        alpha = self.alpha * paired * self._shape.lean(self._sizes(state))
        p = probability(alpha, c, state.momentum) if self.p == "auto" else self.p
        return p, effective_momentum(alpha, p, c)

    @property
    def _shape(self) -> Mutation:
        return Mutation(self.mutation, self.alpha, self.sigma)

    def _acceleration(self, round: int) -> float:
        return self.acc * (1 - min(round / self.bound, 1))

    def _sizes(self, state: FedQPState) -> list[int]:
        params = state.model.params
        return [sum(params[name].numel() for name in names) for names in layers(params, self.granularity)]


def project(mutation: Tensor, delta: Tensor) -> Tensor:
    """The vector x nearest to `mutation` with `<x, delta> >= 0`.

    Numbers within rounding error of 0 become 0.
    """
    largest = delta.abs().max() if delta.numel() else delta.sum()
    if largest == 0:
        return mutation
    x, axis = mutation.double(), delta.double() / largest
    inner = (x * axis).sum()
    if inner >= 0:
        return mutation
    found = x - inner / axis.square().sum() * axis  # eqs. 4, 5
    rounding = 16 * torch.finfo(mutation.dtype).eps * x.abs()
    return torch.where(found.abs() <= rounding, 0.0, found).to(mutation.dtype)


def effective_momentum(alpha: float, p: float, c: float) -> float:
    """The expected distance of the models sent from the global one, in multiples of delta."""
    return alpha / 2 * (p + c - p * c)


def probability(alpha: float, c: float, momentum: float) -> float:
    """The p whose effective momentum is closest to the given one."""
    if alpha == 0 or c == 1:
        return 0.0
    return min(max((2 * momentum / alpha - c) / (1 - c), 0.0), 1.0)


def adapted(momentum: float, cosine: float) -> float:
    """The next momentum of `p = "auto"`.

    `cosine` compares the clients' mean update with the direction in which their models were pushed. If it is
    large, clients continued in that direction, and a longer push would have been better; if it is small or
    negative, they moved back, and the push was too long.
    """
    gain = RISE if cosine > NEUTRAL else FALL
    return min(max(momentum + gain * (cosine - NEUTRAL), 0.0), LARGEST)
