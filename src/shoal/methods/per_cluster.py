"""Per cluster: runs any method separately in each group of clients with similar data.

Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin: Efficient Distribution Similarity Identification in
Clustered Federated Learning via Principal Angles between Client Data Subspaces, AAAI 2023 (PACFL), in the
form that GENE-FL gives it (Guo, Lv, Wang, Geng: GENE-FL: Gene-Driven Parameter-Efficient Dynamic Federated
Learning, section III).

    client:  the first d left singular vectors of its samples, sent once    eq. 11  -> `parts.signature`
    server:  group the clients into K clusters, once                                -> `parts.clusters`
             run the inner method on each cluster, with a state of its own          -> the functions below
             a newcomer joins the nearest cluster, whose centre moves       eq. 12  -> `Clusters.joined`

All clusters start from the same weights. With one cluster the result is the inner method's, bit for bit.

Departures: PACFL compares all vectors of two clients by their angles and cuts a tree of clusters at a
threshold; GENE-FL specifies k-means on vec(U), which changes with the signs of the vectors, and takes U over
samples, so that clients of different sizes could not be compared. Here k-means runs on the projectors U U^T
(`clustering = "kmeans"`); `"kmedoids"` and `"linkage"` (average linkage) use the distances between
projectors, and `"literal"` is k-means on vec(U) with fixed signs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor

from shoal.core.data import Batching, Data
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.method import Axes, Method, Recipe
from shoal.core.task import Task
from shoal.core.types import (
    Acc,
    Cohort,
    Context,
    Memory,
    Metrics,
    Moment,
    PerClient,
    Reply,
    Setting,
    State,
    Tree,
    Weights,
    message_for,
)
from shoal.methods.fedavg import FedAvg
from shoal.parts.cluster_metrics import merged
from shoal.parts.clusters import Clusters, Rule
from shoal.parts.signature import signature


class ClusterProfile(NamedTuple):
    """The profile that a new client sends to the server."""

    signature: Tensor  # [features, rank]
    inner: Tree  # the inner method's profile


class ClusterStates(NamedTuple):
    """The server state: the clients' clusters, and the inner method's state for each cluster."""

    clusters: Clusters
    inner: tuple[State, ...]
    moved: Mapping[int, int]  # client -> cluster, for clients that have joined since the last record


class ClusterAccs(NamedTuple):
    """The accumulator: the inner method's accumulator and the number of replies of each cluster."""

    clusters: Clusters
    inner: tuple[Acc, ...]
    replies: tuple[int, ...]


@dataclass(frozen=True)
class PerCluster(Method):
    """Groups the clients by their data and runs a method of your choice (`inner`) in each group."""

    inner: Method | Recipe = field(default_factory=FedAvg)
    clusters: int = 4
    rank: int = 5  # d, the number of singular vectors in a signature
    clustering: Rule = "kmeans"

    def __post_init__(self) -> None:
        for name, value in (("clusters", self.clusters), ("rank", self.rank)):
            if value < 1:
                raise SpecError(f"{name} must be at least 1, got {value}")
        if isinstance(self._method, PerCluster):
            raise SpecError("inner forms clusters of its own; use it without per_cluster")

    @cached_property
    def _method(self) -> Method:
        return self.inner.method() if isinstance(self.inner, Recipe) else self.inner

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        self._method.check(task, axes)

    # ---- server

    def init(self, task: Task, key: Key) -> ClusterStates:
        """See `Method`."""
        state = self._method.init(task, key)
        return ClusterStates(Clusters.empty(self.clustering), (state,) * self.clusters, {})

    def admit(self, state: ClusterStates, profiles: Mapping[int, Tree], moment: Moment) -> ClusterStates:
        """See `Method`."""
        if not profiles:
            return state
        signatures = {client: profile.signature for client, profile in profiles.items()}
        if state.clusters.sizes:
            clusters = state.clusters.joined(signatures, self.clusters)
        else:
            clusters = state.clusters.founded(signatures, self.clusters, moment.key)
        inner = list(state.inner)
        for k in range(self.clusters):
            own = {c: profile.inner for c, profile in profiles.items() if clusters.homes[c] == k}
            if own:
                inner[k] = self._method.admit(inner[k], own, moment)
        moved = {**state.moved, **{client: clusters.homes[client] for client in profiles}}
        return ClusterStates(clusters, tuple(inner), moved)

    def legs(self, state: ClusterStates, cohort: Cohort, moment: Moment) -> tuple[Cohort, ...]:
        """See `Method`. Leg l joins the l-th legs of all clusters that have that many."""
        parts = [
            tuple(
                _renumbered(leg, k, self.clusters)
                for leg in self._method.legs(state.inner[k], cohort.take(positions), moment)
            )
            for k, positions in _parted(state.clusters, cohort).items()
        ]
        if all(len(part) == 1 and not part[0].settings.keys() - cohort.settings for part in parts):
            return (cohort,)
        most = max((len(part) for part in parts), default=1)
        return tuple(_joint([part[leg] for part in parts if leg < len(part)]) for leg in range(most))

    def planned(self, state: ClusterStates, cohort: Cohort, moment: Moment) -> Metrics:
        """See `Method`."""
        parts = _parted(state.clusters, cohort).items()
        return merged([self._method.planned(state.inner[k], cohort.take(own), moment) for k, own in parts])

    def dispatch(self, task: Task, state: ClusterStates, cohort: Cohort, moment: Moment) -> Tree:
        """See `Method`."""
        return self._combined(
            state, cohort, lambda k, own: self._method.dispatch(task, state.inner[k], own, moment)
        )

    def serve(self, state: ClusterStates, cohort: Cohort) -> Tree:
        """See `Method`."""
        return self._combined(state, cohort, lambda k, own: self._method.serve(state.inner[k], own))

    def _combined(self, state: ClusterStates, cohort: Cohort, message: Any) -> Tree:
        """The inner method's messages to the clusters, combined into one."""
        parts = _parted(state.clusters, cohort)
        if len(parts) <= 1:
            return message(next(iter(parts), 0), cohort)
        rows: list[Tree] = [None] * len(cohort.ids)
        for k, positions in parts.items():
            sent = message(k, cohort.take(positions))
            for i, position in enumerate(positions):
                rows[position] = message_for(sent, i)
        return type(rows[0])(*(PerClient(column) for column in zip(*rows, strict=True)))

    def expects(self, task: Task, sent: Tree) -> Mapping[str, Tree]:
        """See `Method`."""
        return self._method.expects(task, sent)

    def begin(self, state: ClusterStates, cohort: Cohort) -> ClusterAccs:
        """See `Method`."""
        parts = _parted(state.clusters, cohort)
        inner = (self._method.begin(one, cohort.take(parts.get(k, []))) for k, one in enumerate(state.inner))
        return ClusterAccs(state.clusters, tuple(inner), (0,) * self.clusters)

    def fold(self, acc: ClusterAccs, client: int, sent: Tree, reply: Reply) -> ClusterAccs:
        """See `Method`."""
        k = acc.clusters.home(client)
        inner, replies = list(acc.inner), list(acc.replies)
        inner[k] = self._method.fold(inner[k], client, sent, reply)
        replies[k] += 1
        return acc._replace(inner=tuple(inner), replies=tuple(replies))

    def finish(
        self, task: Task, state: ClusterStates, acc: ClusterAccs, moment: Moment
    ) -> tuple[ClusterStates, Metrics]:
        """See `Method`."""
        inner, told = list(state.inner), []
        for k, replies in enumerate(acc.replies):
            if replies or moment.last:
                inner[k], metrics = self._method.finish(task, inner[k], acc.inner[k], moment)
                told += [metrics] * bool(replies)
        news: Metrics = {"clusters": state.moved} if state.moved else {}
        return ClusterStates(state.clusters, tuple(inner), {}), {**merged(told), **news}

    def model(self, state: ClusterStates) -> Weights | None:
        """See `Method`. None if there are several clusters."""
        return self._method.model(state.inner[0]) if self.clusters == 1 else None

    def models(self, state: ClusterStates) -> Mapping[str, Weights]:
        """See `Method`."""
        if self.clusters == 1:
            return self._method.models(state.inner[0])
        return {
            f"cluster{k}.{name}" if name else f"cluster{k}": weights
            for k, inner in enumerate(state.inner)
            for name, weights in self._method.models(inner).items()
        }

    def received(self, reply: Reply, sent: Tree) -> Reply:
        """See `Method`."""
        return self._method.received(reply, sent)

    # ---- client: delegates to the inner method

    def profile(self, task: Task, data: Data, key: Key) -> ClusterProfile:
        """See `Method`."""
        inner = self._method.profile(task, data, key) if self._method.asks_profile else ()
        return ClusterProfile(signature(data.all.x, self.rank), inner)

    @property
    def client_method(self) -> Method:
        """See `Method`."""
        return self._method

    @property
    def asks_report(self) -> bool:
        """See `Method`."""
        return self._method.asks_report

    @property
    def batching(self) -> Batching | None:
        """See `Method`."""
        return self._method.batching

    @property
    def passes(self) -> float:
        """See `Method`."""
        return self._method.passes

    @property
    def remembers(self) -> bool:
        """See `Method`."""
        return self._method.remembers

    def client_init(self, task: Task, key: Key) -> Memory:
        """See `Method`."""
        return self._method.client_init(task, key)

    def client_update(
        self, task: Task, memory: Memory, message: Tree, data: Data, context: Context
    ) -> tuple[Memory, Reply]:
        """See `Method`."""
        return self._method.client_update(task, memory, message, data, context)

    def upload(self, reply: Reply, setting: Setting) -> Reply:
        """See `Method`."""
        return self._method.upload(reply, setting)

    def local_model(self, memory: Memory, message: Tree) -> Weights:
        """See `Method`."""
        return self._method.local_model(memory, message)


def _parted(clusters: Clusters, cohort: Cohort) -> dict[int, list[int]]:
    """The positions of the cohort's members, by cluster."""
    parts: dict[int, list[int]] = {}
    for position, client in enumerate(cohort.ids):
        parts.setdefault(clusters.home(client), []).append(position)
    return parts


def _renumbered(leg: Cohort, cluster: int, clusters: int) -> Cohort:
    """The leg with chain numbers that no other cluster uses."""
    if "chain" not in leg.settings:
        return leg
    chains = tuple(chain * clusters + cluster for chain in leg.settings["chain"])
    return leg._replace(settings={**leg.settings, "chain": chains})


def _joint(parts: Sequence[Cohort]) -> Cohort:
    """The members of several clusters as one cohort; a setting that a cluster lacks is None."""
    names = {name for part in parts for name in part.settings}
    settings = {
        name: tuple(value for part in parts for value in part.settings.get(name, (None,) * len(part.ids)))
        for name in sorted(names)
    }
    return Cohort(tuple(c for part in parts for c in part.ids), settings, parts[0].population)
