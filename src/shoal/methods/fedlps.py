"""FedLPS: weak clients train a smaller model, made of the strongest channels of the global one.

Jia, Zhang, Beheshti, Dou: FedLPS: Heterogeneous Federated Learning for Multiple Tasks with Local Parameter
Sharing, 2024.

    server:    client i gets the model without a share r_i of each hidden layer's channels, those of the
               smallest L1 norm                                            -> `parts.channels.pruned`
    client i:  trains the smaller model and sends its update
    server:    each weight <- mean over the clients that hold it           -> `FedLPS.fold`

Only the remaining channels of a layer are sent, in both directions. The ratios are assigned to the clients in
turn. With ratio 0 for all clients it is FedAvg, bit for bit. A client uses its own smaller model.

Departures: the authors freeze a pre-trained encoder that several tasks share; here there is one task, and
`[task] frozen` can freeze layers. They average pruned weights as zeros (`aggregate = "zeros"`); by default a
weight is averaged over the clients that hold it. Channels that a skip connection also reads are not pruned. A
client computes with zeros in place of the pruned channels, with the same results; only its traffic shrinks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from shoal.aggregators.aggregator import Weighting, moved
from shoal.aggregators.averaging import Averaged, Averaging, client_weight
from shoal.aggregators.mean import Mean, WeightedSum, counted, reached
from shoal.core.data import Data
from shoal.core.errors import SpecError
from shoal.core.flat import flat, vectors
from shoal.core.key import Key
from shoal.core.method import Axes
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.training import Course, Start, Training, check_training
from shoal.core.tree import add, elementwise, subtract
from shoal.core.types import (
    Cohort,
    Context,
    Metrics,
    ModelUpdate,
    Moment,
    PerClient,
    Reply,
    Setting,
    Weights,
)
from shoal.parts.channels import ChannelGroup, Pruning, channel_groups, pruned, strongest
from shoal.parts.layers import NO_LAYERS
from shoal.parts.pruned_models import add_where_held, enlarged, smaller, whole_shapes
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


class FedLPSState(NamedTuple):
    """The server state: the model, and the channels that can be pruned."""

    averaged: Averaged
    groups: tuple[ChannelGroup, ...]

    @property
    def model(self) -> Weights:
        """The global model, with all channels."""
        return self.averaged.model


class FedLPSMessage(NamedTuple):
    """The message to a client: its smaller model, and the channels that this model has."""

    model: Weights | PerClient
    kept: Pruning | PerClient


class FedLPSUpdate(NamedTuple):
    """The payload of a client: at the client with zeros for its pruned channels, on the wire without them."""

    update: Weights
    kept: Pruning


class Holders(NamedTuple):
    """Clients with the same channels: the model that the last of them was sent, and their total weight."""

    kept: Pruning
    sent: Weights
    offset: Weights | None  # of the sent model from the server's; None: it was sent exactly
    weight: float


class FedLPSAcc(NamedTuple):
    """The accumulator: the sums of all changes, with zeros for pruned numbers, and the holders by ratio."""

    model: Weights
    sums: WeightedSum
    holders: Mapping[float, Holders]
    counters: Mapping[str, Tensor]
    draws: Mapping[int, int]


@dataclass(frozen=True)
class FedLPS(Training):
    """Clients receive, train and send smaller models that have only some channels of the global one."""

    ratios: tuple[float, ...] = (
        0.0,
        0.0,
        0.2,
        0.5,
        0.8,
    )  # shares of the channels that are pruned, assigned to clients in turn
    aggregate: Literal["holders", "zeros"] = "holders"
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        if not self.ratios or not all(0 <= ratio < 1 for ratio in self.ratios):
            raise SpecError(f"ratios must be shares in [0, 1) such as [0.0, 0.5, 0.8], got {[*self.ratios]}")

    def check(self, task: Task, axes: Axes) -> None:
        """See `Method`."""
        check_training(self.local, self.terms, task)
        self._averaging.check(task, axes)
        if any(self.ratios) and not channel_groups(task):
            raise SpecError(
                "fedlps finds no channel of this model that can be removed; it needs hidden layers"
            )

    @property
    def _averaging(self) -> Averaging:
        return Averaging(Mean(), self.server, self.weights)

    # ---- server

    def init(self, task: Task, key: Key) -> FedLPSState:
        """See `Method`."""
        groups = channel_groups(task) if any(self.ratios) else ()
        return FedLPSState(self._averaging.init(task.init(key)), groups)

    def dispatch(self, task: Task, state: FedLPSState, cohort: Cohort, moment: Moment) -> FedLPSMessage:
        """See `Method`."""
        return self.serve(state, cohort)

    def serve(self, state: FedLPSState, cohort: Cohort) -> FedLPSMessage:
        """See `Method`."""
        made: dict[float, tuple[Weights, Pruning]] = {0.0: (state.model, {})}
        ranked = strongest(state.groups, state.model)
        for ratio in {ratio for ratio in self.ratios if ratio}:
            kept = pruned(state.groups, ranked, ratio)
            made[ratio] = (smaller(state.model, kept), kept)
        rows = [made[self._ratio(client)] for client in cohort.ids]
        return FedLPSMessage(PerClient([model for model, _ in rows]), PerClient([kept for _, kept in rows]))

    def _ratio(self, client: int) -> float:
        return self.ratios[client % len(self.ratios)]

    def begin(self, state: FedLPSState, cohort: Cohort) -> FedLPSAcc:
        """See `Method`."""
        return FedLPSAcc(state.model, WeightedSum.empty(), {}, {}, cohort.draws)

    def expects(self, task: Task, sent: Any) -> Mapping[str, Any]:
        """See `Method`."""
        return {"update": whole_shapes(sent.model, sent.kept) if sent.kept else sent.model}

    def received(self, reply: Reply, sent: Any) -> Reply:
        """See `Method`."""
        return reply._replace(payload=ModelUpdate(enlarged(reply.payload.update, sent.kept)))

    def fold(self, acc: FedLPSAcc, client: int, sent: Any, reply: Reply) -> FedLPSAcc:
        """See `Method`."""
        weight, ratio = client_weight(self.weights, reply) * acc.draws.get(client, 1), self._ratio(client)
        held = acc.holders.get(ratio, Holders(sent.kept, NO_LAYERS, None, 0.0))
        offset = held.offset if held.sent is sent.model else _offset(acc.model, sent)
        update = reply.payload.update
        if not sent.kept:
            sums = _added(acc.sums, acc.model, sent.model, update, weight)
        else:
            moved_by = update if offset is None else add(update, offset)
            sums = _added(acc.sums, moved_by, moved_by, moved_by, weight)
        holders = {**acc.holders, ratio: Holders(sent.kept, sent.model, offset, held.weight + weight)}
        return acc._replace(sums=sums, holders=holders, counters=reached(acc.counters, sent.model, update))

    def finish(
        self, task: Task, state: FedLPSState, acc: FedLPSAcc, moment: Moment
    ) -> tuple[FedLPSState, Metrics]:
        """See `Method`."""
        mean = self._mean(acc)
        params, buffers = ({name: mean[name] for name in part if name in mean} for part in state.model)
        step = mean if vectors(state.model.params, mean) else flat(params)
        kept, step = self.server.step(state.averaged.server, step)
        whole = Weights(step, {**buffers, **counted(state.model, acc.counters)})
        averaged = state.averaged._replace(model=moved(state.model, whole), server=kept)
        return state._replace(averaged=averaged), {}

    def _mean(self, acc: FedLPSAcc) -> Mapping[str, Tensor]:
        """By tensor: the mean change of each number, over the clients that hold it or over all clients."""
        if all(not held.kept for held in acc.holders.values()):
            return acc.sums.mean()
        holding, everyone = self._holding(acc), sum(held.weight for held in acc.holders.values())
        mean: Mapping[str, Tensor]
        if self.aggregate == "holders":
            mean = elementwise(_divided, acc.sums.values, holding)
        else:  # a pruned number counts as 0
            params, buffers = acc.model
            mean = elementwise(
                lambda change, held, value: (change - (everyone - held) * value) / everyone,
                acc.sums.values,
                holding,
                {**params, **buffers} if buffers else params,
            )
        return mean

    def _holding(self, acc: FedLPSAcc) -> Mapping[str, Tensor]:
        """By tensor: the total weight of the clients that hold each number."""
        totals: Mapping[str, Tensor] = elementwise(torch.zeros_like, acc.sums.values)
        for held in acc.holders.values():
            add_where_held(totals, held.kept, held.weight)
        return totals

    # ---- client

    def client_training(self, task: Task, memory: Any, message: Any, data: Data, context: Context) -> Course:
        """See `Training`."""
        start = self.local_model(memory, message)
        trained = yield Start(start, self.terms, only_update=True)
        payload = FedLPSUpdate(trained.update(start), message.kept)
        return memory, Reply(payload, data.weight, {"train_loss": trained.loss})

    def upload(self, reply: Reply, setting: Setting) -> Reply:
        """See `Method`."""
        return reply._replace(payload=ModelUpdate(smaller(reply.payload.update, reply.payload.kept)))

    def local_model(self, memory: Any, message: Any) -> Weights:
        """See `Method`."""
        return enlarged(message.model, message.kept)


def _added(sums: WeightedSum, origin: Weights, sent: Weights, update: Weights, weight: float) -> WeightedSum:
    """The sums with one more summand: its parameters, and its buffers except counters."""
    sums = sums.add_offsets(origin.params, sent.params, update.params, weight)
    buffers = {name: value for name, value in update.buffers.items() if value.is_floating_point()}
    return sums.add_offsets(origin.buffers, sent.buffers, buffers, weight) if buffers else sums


def _offset(model: Weights, sent: Any) -> Weights | None:
    """The sent model, which a codec may have rounded, minus the server's; None if they are equal."""
    if not sent.kept:
        return None
    origin = smaller(model, sent.kept)
    if all(map(_equal, sent.model, origin)):
        return None
    return enlarged(subtract(sent.model, origin), sent.kept)


def _equal(found: Mapping[str, Tensor], known: Mapping[str, Tensor]) -> bool:
    whole = vectors(found, known)
    if whole is not None:
        return torch.equal(*whole)
    return all(torch.equal(found[name], known[name]) for name in known)


def _divided(change: Tensor, held: Tensor) -> Tensor:
    """The mean over the holders; 0 where there are none, since 0 / tiny is 0. Writes to `held`."""
    return change / held.clamp_(min=torch.finfo(held.dtype).tiny)
