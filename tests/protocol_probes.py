"""One small part for each thing that the protocol lets methods, selectors and codecs do.

A model that goes from client to client, replies that are not updates, rounds of many exchanges, replies seen
all at once, profiles of newcomers, settings for single clients, a codec with a memory. Only tests use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from shoal.core.codec import Codec, Packet
from shoal.core.gate import Like
from shoal.core.method import Gather, Method
from shoal.core.selector import Selector
from shoal.core.tree import subtract, tree_map
from shoal.core.types import Cohort, ModelMessage, ModelUpdate, PerClient, Reply, Weights
from shoal.methods.scaffold import Scaffold
from shoal.solver.sgd import Sgd


class ServerState(NamedTuple):
    model: Weights


def train(method: Any, task: Any, message: Any, data: Any, context: Any) -> Reply:
    trained = method.local.train(task, message.model, data, context)
    update = subtract(trained.weights, message.model)
    return Reply(ModelUpdate(update), data.weight, {"train_loss": trained.loss})


# ---- several exchanges a round: a model goes from client to client


class Chains(NamedTuple):
    model: Weights
    walking: Mapping[int, Weights]  # the model on its way through each chain


class ChainAcc(NamedTuple):
    chain_of: Mapping[int, int]
    arrived: Mapping[int, Weights]


@dataclass(frozen=True)
class ModelChain(Method):
    """Cuts the cohort into chains of `length`; leg l trains the l-th member of each."""

    local: Sgd = field(default_factory=Sgd)
    length: int = 2

    def init(self, task, key):
        return Chains(task.init(key), {})

    def legs(self, state, cohort, moment):
        chain = tuple(i // self.length for i in range(len(cohort.ids)))
        cohort = cohort._replace(settings={**cohort.settings, "chain": chain})
        places = [[i for i in range(len(cohort.ids)) if i % self.length == leg] for leg in range(self.length)]
        return tuple(cohort.take(place) for place in places if place)

    def dispatch(self, task, state, cohort, moment):
        chains = cohort.settings["chain"]
        return ModelMessage(PerClient([state.walking.get(chain, state.model) for chain in chains]))

    def begin(self, state, cohort):
        return ChainAcc(dict(zip(cohort.ids, cohort.settings["chain"], strict=True)), state.walking)

    def fold(self, acc, client, sent, reply):
        here = tree_map(torch.add, sent.model, reply.payload.update)
        return acc._replace(arrived={**acc.arrived, acc.chain_of[client]: here})

    def finish(self, task, state, acc, moment):
        if not acc.arrived:
            return state, {}
        ends = list(acc.arrived.values())
        mean = tree_map(lambda *x: torch.stack(x).double().mean(0).float(), *ends)
        return Chains(mean, acc.arrived), {"chains": len(ends)}

    def model(self, state):
        return state.model

    @property
    def batching(self):
        return self.local.batching

    def client_update(self, task, memory, message, data, context):
        return memory, train(self, task, message, data, context)


# ---- replies that are not updates: candidates down, losses up, as in FSI


class BestSoFar(NamedTuple):
    best: Weights
    loss: Tensor


class Candidates(NamedTuple):
    candidates: list[Weights]


class Losses(NamedTuple):
    losses: Tensor


class LossAcc(NamedTuple):
    candidates: list[Weights]
    total: Tensor
    samples: float


@dataclass(frozen=True)
class RandomSearch(Method):
    """Random search: the server tries steps, the clients say how good they are."""

    tries: int = 8

    def init(self, task, key):
        return BestSoFar(task.init(key), torch.tensor(torch.inf, dtype=torch.float64))

    def dispatch(self, task, state, cohort, moment):
        noise = moment.key.torch()
        steps = [
            tree_map(lambda p: p + 0.3 * torch.randn(p.shape, generator=noise), state.best)
            for _ in range(self.tries)
        ]
        return Candidates(steps)

    def begin(self, state, cohort):
        return LossAcc([], torch.zeros(self.tries, dtype=torch.float64), 0.0)

    def fold(self, acc, client, sent, reply):
        weight = float(reply.weight)
        return LossAcc(sent.candidates, acc.total + weight * reply.payload.losses, acc.samples + weight)

    def finish(self, task, state, acc, moment):
        if not acc.samples:
            return state, {}
        losses = acc.total / acc.samples
        found = int(losses.argmin())
        if losses[found] >= state.loss:
            return state, {"best_loss": state.loss}
        return BestSoFar(acc.candidates[found], losses[found]), {"best_loss": losses[found]}

    def model(self, state):
        return state.best

    def client_update(self, task, memory, message, data, context):
        x, y = data.all
        with torch.no_grad():
            losses = torch.stack([task.losses(w, x, y).sum(1).mean() for w in message.candidates])
        return memory, Reply(Losses(losses.double()), data.weight, {})


# ---- many exchanges of one kind, for which there is a shortcut, as in FSI


class Total(NamedTuple):
    total: Tensor


@dataclass(frozen=True)
class ManyLegs(Method):
    """Every leg halves the total and adds all clients' labels; a client may tell of infinity."""

    count: int = 5
    short: bool = True

    def init(self, task, key):
        return Total(torch.zeros((), dtype=torch.float64))

    def legs(self, state, cohort, moment):
        return (cohort,) * self.count

    def dispatch(self, task, state, cohort, moment):
        return state

    def expects(self, task, sent):
        return {"total": Like((), torch.float64, finite=False)}

    def begin(self, state, cohort):
        return state.total / 2

    def fold(self, acc, client, sent, reply):
        return acc + reply.payload.total

    def finish(self, task, state, acc, moment):
        return Total(acc), {"total": float(acc)}

    def shortcut(self, task, state, data, legs, threads):
        if not self.short:
            return None
        for _ in range(legs):
            acc = self.begin(state, None)
            for held in data.values():
                acc = acc + held.all_y.sum()
            state = Total(acc)
        return state, {"total": float(acc)}

    def model(self, state):
        return None

    def client_update(self, task, memory, message, data, context):
        return memory, Reply(Total(data.all_y.sum().double()), data.weight, {})


# ---- replies that must be seen all at once: a coordinate-wise median


@dataclass(frozen=True)
class MedianUpdate(Method):
    local: Sgd = field(default_factory=Sgd)

    def init(self, task, key):
        return ServerState(task.init(key))

    def dispatch(self, task, state, cohort, moment):
        return ModelMessage(state.model)

    def begin(self, state, cohort):
        return Gather()

    def fold(self, acc, client, sent, reply):
        return acc.add(client, sent, reply)

    def finish(self, task, state, acc, moment):
        if not acc.replies:
            return state, {}
        updates = [reply.payload.update for _, _, reply in acc.replies]
        step = tree_map(lambda *x: torch.stack(x).quantile(0.5, dim=0), *updates)
        return ServerState(tree_map(torch.add, state.model, step)), {"seen": len(updates)}

    def model(self, state):
        return state.model

    @property
    def batching(self):
        return self.local.batching

    def client_update(self, task, memory, message, data, context):
        return memory, train(self, task, message, data, context)


# ---- profiles of newcomers: a model for each cluster, chosen by the commonest label


class Clusters(NamedTuple):
    models: list[Weights]
    home: Mapping[int, int]


@dataclass(frozen=True)
class ClusterByLabel(Method):
    local: Sgd = field(default_factory=Sgd)

    def init(self, task, key):
        return Clusters([task.init(key) for _ in range(task.classes)], {})

    def profile(self, task, data, key):
        return data.label_counts

    def admit(self, state, profiles, moment):
        homes = {client: int(counts.argmax()) for client, counts in profiles.items()}
        return state._replace(home={**state.home, **homes})

    def dispatch(self, task, state, cohort, moment):
        return ModelMessage(PerClient([state.models[state.home[client]] for client in cohort.ids]))

    def serve(self, state, cohort):
        return self.dispatch(None, state, cohort, None)

    def begin(self, state, cohort):
        return Gather()

    def fold(self, acc, client, sent, reply):
        return acc.add(client, sent, reply)

    def finish(self, task, state, acc, moment):
        models = list(state.models)
        for client, sent, reply in acc.replies:
            models[state.home[client]] = tree_map(torch.add, sent.model, reply.payload.update)
        return state._replace(models=models), {"clusters": state.home}

    def model(self, state):
        return None

    def models(self, state):
        return {str(i): model for i, model in enumerate(state.models)}

    @property
    def batching(self):
        return self.local.batching

    def client_update(self, task, memory, message, data, context):
        return memory, train(self, task, message, data, context)


# ---- settings for single clients: a selector that says with how many bits, a codec with error feedback


@dataclass(frozen=True)
class BitsBySize(Selector):
    """Small clients get two bits, large ones eight."""

    def init(self):
        return {}

    def profile(self, data):
        return data.count

    def admit(self, state, profiles):
        return {**state, **profiles}

    def select(self, state, available, reports, moment):
        bits = tuple(2 if state[client] < 40 else 8 for client in available)
        return Cohort(tuple(available), {"bits": bits}, len(available))


@dataclass(frozen=True)
class FormatById(Selector):
    """Everybody takes part, in one of four number formats."""

    def select(self, state, available, reports, moment):
        names = ("e5m2", "float16", "bfloat16", "float32")
        formats = tuple(names[client % 4] for client in available)
        return Cohort(tuple(available), {"format": formats}, len(available))


class Quantized(NamedTuple):
    codes: Tensor
    least: Tensor
    step: Tensor


@dataclass(frozen=True)
class Quantizer(Codec):
    """Uniform levels, as many as the setting's bits allow; what was lost is added next time."""

    remembers: ClassVar[bool] = True

    def encode(self, tree, *, setting=None, key=None, reference=None, memory=None):
        if not setting or "bits" not in setting or not isinstance(tree, ModelUpdate):
            return Packet(tree), memory
        wanted = tree if memory is None else tree_map(torch.add, tree, memory)
        packet = Packet(tree_map(lambda x: _quantized(x, setting["bits"]), wanted))
        return packet, subtract(wanted, self.decode(packet))

    def decode(self, packet, reference=None):
        return tree_map(
            lambda leaf: leaf.least + leaf.codes * leaf.step if isinstance(leaf, Quantized) else leaf,
            packet.content,
            is_leaf=lambda node: isinstance(node, Quantized),
        )


def _quantized(x, bits):
    least, step = x.min(), ((x.max() - x.min()) / (2**bits - 1)).clamp(min=1e-12)
    return Quantized(((x - least) / step).round().to(torch.uint8), least, step)


class ScaffoldByClient(Scaffold):
    """Overrides what clients do, with the same."""

    def client_training(self, task, memory, message, data, context):
        return (yield from super().client_training(task, memory, message, data, context))
