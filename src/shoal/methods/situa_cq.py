"""SITUA-CQ: chains of clients with balanced labels, selected by round time, in different number formats.

Seo, Lee, Ko, Pack: SITUA-CQ, IEEE Internet of Things Journal 2023, doi 10.1109/JIOT.2023.3262582, in the form
of the authors' slides and code.

    report:    label histogram, once; computing time and rates in every round     -> `SituaCQ.profile`
    cluster:   greedily, until KL(labels || uniform) <= theta_d                   -> `parts.kl_clusters`
    select:    clusters by R, the sum over members of compute + down + up,
               until theta_k clients are chosen                                   -> `cluster_plan.plan`
    quantise:  fast clusters get more bits, by the quotas theta_b                 -> `cluster_plan.levels`
    train:     the model goes from member to member of a cluster                  -> `SituaCQ.legs`
    aggregate: the mean of the clusters' models                                   -> `aggregators.mean`

Clusters work in parallel, and the members of a cluster one after another: a cluster is a chain.

Departures: an unfinished last cluster is dropped, as in the printed algorithm; the authors' code closes it
(`clustering = "released"`). Clusters are weighted by their samples; `weights = "uniform"` is the code's mean.
If clusters run out before theta_k clients are found, the search ends; in the code it does not. A model that
is sent in fewer bits is rounded stochastically, and so is unbiased. Three options are ours:
- `pool`: only the fastest share of the clients is clustered.
- `aggregate = "delta"`: a cluster's step is measured from the model in the cluster's own format, so that the
  rounding of the global model is not averaged in.
- `rotate`: the clients that have waited longest go first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.averaging import Averaged, AveragingMethod
from shoal.aggregators.mean import Mean
from shoal.core.data import Data
from shoal.core.devices import BITS
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.method import Axes
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.training import Course, Start, check_training
from shoal.core.types import (
    Cohort,
    Context,
    Memory,
    Metrics,
    Moment,
    PerClient,
    Reply,
    Report,
    Setting,
    Tree,
    Weights,
)
from shoal.parts.chains import ChainAcc, ClientChain, after_member, chains_of
from shoal.parts.cluster_plan import EPSILON, LEVELS, RoundPlan, Thresholds, plan
from shoal.parts.kl_clusters import Greed, kl_clusters
from shoal.parts.transfer import HandedOn, in_format, template, widened
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd

UNKNOWN = Report(0.0, math.inf, math.inf, 0.0, 0.0)  # for a client that does not report its speed
PRESETS = {
    "paper": Thresholds(0.4, 0.6, (0.3, 0.3, 0.4), 1.0, "model"),
    "fast": Thresholds(0.8, 0.2, (0.0, 0.0, 1.0), 0.3, "delta"),
}


class SituaMessage(NamedTuple):
    """The model on its way along the chains, in the number format of each cluster."""

    model: Weights | PerClient


class SituaState(NamedTuple):
    """The server state."""

    averaged: Averaged
    histograms: Mapping[int, tuple[int, ...]]  # label counts of each client
    chains: Mapping[int, ClientChain]  # of this round, so far
    last: Mapping[int, int]  # the round in which a client last trained, counted from 1
    model_bytes: int  # in float32

    @property
    def model(self) -> Weights:
        """The global model."""
        return self.averaged.model


@dataclass(frozen=True)
class SituaCQ(AveragingMethod):
    """Passes the model along clusters of clients with balanced labels, chosen by speed, at low precision."""

    preset: Literal["paper", "fast"] = "paper"
    theta_d: float | None = None
    theta_k: float | None = None  # clients to select: a share of them up to 1, a number above 1
    theta_b: tuple[float, ...] | None = None  # shares of the clients at 32, 16 and 8 bits
    pool: float | None = None  # the fastest share of the clients, which is clustered
    aggregate: Literal["model", "delta"] | None = None
    clustering: Greed = "printed"
    rotate: bool = False
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    selector: ClassVar[str] = "all"

    @property
    def asks_report(self) -> bool:
        """See `Method`."""
        return True

    def __post_init__(self) -> None:
        values = self.settled
        if not values.theta_d >= 0:
            raise SpecError(f"theta_d must be at least 0, got {values.theta_d:g}")
        if not 0 < values.theta_k < math.inf:
            raise SpecError(f"theta_k must be above 0, got {values.theta_k:g}; 0.6 is a share, 20 a number")
        shares = values.theta_b
        if len(shares) != len(LEVELS) or min(shares) < 0 or abs(sum(shares) - 1) > EPSILON:
            raise SpecError(
                f"theta_b must be three shares that add up to 1, for 32, 16 and 8 bits; got {list(shares)}"
            )
        if not 0 < values.pool <= 1:
            raise SpecError(f"pool must be a share of the clients in (0, 1], got {values.pool:g}")

    @property
    def settled(self) -> Thresholds:
        """The fields that were given, and the preset's values for the others."""
        usual = PRESETS[self.preset]
        given = {name: getattr(self, name) for name in Thresholds._fields if getattr(self, name) is not None}
        return usual._replace(**given)

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        check_training(self.local, self.terms, task)
        self.averaging.check(task, axes)
        if not task.classes:
            raise SpecError("situa_cq clusters clients by their labels; a regression has none")
        if axes.over_select > 1:
            raise SpecError(
                "situa_cq needs every member of a chain, and faults.over_select drops some; set a deadline"
            )

    # ---- server

    def init(self, task: Task, key: Key) -> SituaState:
        """See `Method`."""
        size = 4 * sum(shape.numel() for shape in task.shapes.values())
        return SituaState(self.averaging.init(task.init(key)), {}, {}, {}, size)

    def admit(self, state: SituaState, profiles: Mapping[int, Tree], moment: Moment) -> SituaState:
        """See `Method`."""
        if not profiles:
            return state
        told = {client: tuple(histogram.tolist()) for client, histogram in profiles.items()}
        return state._replace(histograms={**state.histograms, **told})

    def legs(self, state: SituaState, cohort: Cohort, moment: Moment) -> tuple[Cohort, ...]:
        """See `Method`. Leg l consists of the l-th members of all chosen clusters."""
        planned = self._plan(state, cohort, moment)
        longest = max(map(len, planned.clusters), default=0)
        legs = []
        for place in range(longest):
            chains = [k for k, members in enumerate(planned.clusters) if place < len(members)]
            formats = tuple(planned.formats[k] for k in chains)
            settings = {"chain": tuple(chains), "format": formats}
            ids = tuple(planned.clusters[k][place] for k in chains)
            legs.append(Cohort(ids, settings, cohort.population))
        return tuple(legs)

    def planned(self, state: SituaState, cohort: Cohort, moment: Moment) -> Metrics:
        """See `Method`."""
        planned = self._plan(state, cohort, moment)
        return {
            "clusters": [list(members) for members in planned.clusters],
            "formats": [BITS[name] for name in planned.formats],
            "cluster_seconds": list(planned.seconds),
            "unused": list(planned.unused),
        }

    def _plan(self, state: SituaState, cohort: Cohort, moment: Moment) -> RoundPlan:
        told = [client for client in sorted(cohort.ids) if client in state.histograms]
        return plan(
            self.settled,
            {client: state.histograms[client] for client in told},
            {client: moment.reports.get(client, UNKNOWN) for client in told},
            state.model_bytes,
            self.clustering,
            {client: moment.round + 1 - state.last.get(client, 0) for client in told} if self.rotate else {},
        )

    def dispatch(self, task: Task, state: SituaState, cohort: Cohort, moment: Moment) -> SituaMessage:
        """See `Method`. The last accepted model of the chain, or the global one, in the chain's format."""
        formats = cohort.settings.get("format", ("float32",) * len(cohort.ids))
        fresh = {f: in_format(state.model, f, moment.key.fold(f)) for f in dict.fromkeys(formats)}
        rows = [
            in_format(state.chains[chain].model, f, moment.key.fold(f, chain))
            if chain in state.chains
            else fresh[f]
            for chain, f in zip(chains_of(cohort).values(), formats, strict=True)
        ]
        return SituaMessage(rows[0] if all(row is rows[0] for row in rows) else PerClient(rows))

    def serve(self, state: SituaState, cohort: Cohort) -> SituaMessage:
        """See `Method`."""
        return SituaMessage(state.model)

    def expects(self, task: Task, sent: Any) -> Mapping[str, Any]:
        """See `Method`."""
        return {"update": template(sent.model)}

    def begin(self, state: SituaState, cohort: Cohort) -> ChainAcc:
        """See `Method`."""
        return ChainAcc(dict(state.chains), chains_of(cohort), ())

    def fold(self, acc: ChainAcc, client: int, sent: Any, reply: Reply) -> ChainAcc:
        """See `Method`."""
        return after_member(acc, client, widened(sent.model), reply)

    def finish(
        self, task: Task, state: SituaState, acc: ChainAcc, moment: Moment
    ) -> tuple[SituaState, Metrics]:
        """See `Method`."""
        last = {**state.last, **dict.fromkeys(acc.trained, moment.round + 1)}
        if not moment.last:
            return state._replace(chains=acc.chains, last=last), {}
        chains = sorted(acc.chains.values(), key=lambda chain: (-chain.samples, chain.first))
        total = self.averaging.begin(state.averaged, Cohort(tuple(c.first for c in chains), {}, len(chains)))
        for chain in chains:
            sent = state.model if self.settled.aggregate == "delta" else chain.begin
            reply = Reply(None, chain.weight, {})
            total = self.averaging.fold(total, chain.first, sent, chain.update, reply)
        averaged, metrics = self.averaging.finish(task, state.averaged, total, moment)
        return state._replace(averaged=averaged, chains={}, last=last), metrics

    # ---- client

    def profile(self, task: Task, data: Data, key: Key) -> Tree:
        """See `Method`."""
        return data.label_counts

    def local_model(self, memory: Memory, message: Any) -> Weights:
        """See `Method`."""
        return widened(message.model)

    def client_training(
        self, task: Task, memory: Memory, message: Any, data: Data, context: Context
    ) -> Course:
        """See `Training`."""
        start = widened(message.model)
        trained = yield Start(start, self.terms)
        kept = None if start is message.model else start
        payload = HandedOn(trained.update(start), kept)
        return memory, Reply(payload, data.weight, {"train_loss": trained.loss})

    def upload(self, reply: Reply, setting: Setting) -> Reply:
        """See `Method`. The trained model in the client's number format; in float32, its update."""
        return reply._replace(payload=reply.payload.packed(setting.get("format", "float32")))

    def received(self, reply: Reply, sent: Any) -> Reply:
        """See `Method`."""
        return reply._replace(payload=reply.payload.unpacked(sent.model))


def cluster(histograms: Any, target: Any, threshold: float) -> list[list[int]]:
    """Clusters of rows of `histograms` whose labels are within `threshold` of the target mix."""
    return kl_clusters(np.asarray(histograms), np.asarray(target), threshold)
