"""Methods, aggregators and selectors as a user would write them, with nothing but `shoal.extend`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from shoal.extend import (
    Aggregator,
    AveragingMethod,
    Cohort,
    ComputeLoss,
    Gather,
    Mean,
    ModelUpdate,
    Outcome,
    Reply,
    Selector,
    ServerOptimizer,
    ServerSgd,
    Sgd,
    Start,
    Term,
    Training,
    Weighting,
    Weights,
    add,
    for_blocks,
    subtract,
    tree_map,
    zeros_like,
)


class ServerState(NamedTuple):
    model: Weights


@dataclass(frozen=True)
class RandomlyWeighted(Training):
    """Gathers all replies, and averages them with random weights."""

    local: Sgd = field(default_factory=Sgd)

    def init(self, task, key):
        return ServerState(task.init(key))

    def begin(self, state, cohort):
        return Gather()

    def fold(self, acc, client, sent, reply):
        return acc.add(client, sent, reply)

    def finish(self, task, state, acc, moment):
        if not acc.replies:
            return state, {}
        coins = moment.key.fold("coins").numpy().random(len(acc.replies)) + 0.5
        updates = [reply.payload.update for _, _, reply in acc.replies]
        total = tree_map(lambda *x: sum(c * v.double() for c, v in zip(coins, x, strict=True)), *updates)
        step = tree_map(lambda v: (v / coins.sum()).float() if v.is_floating_point() else v, total)
        return ServerState(tree_map(lambda w, s: (w + s).to(w.dtype), state.model, step)), {
            "kept": len(updates)
        }


@dataclass(frozen=True)
class NoisyUpdate(RandomlyWeighted):
    """Adds noise from the client's key to its update, as strong as the client's setting says."""

    def legs(self, state, cohort, moment):
        strengths = tuple(0.01 * (1 + client % 3) for client in cohort.ids)
        return (cohort._replace(settings={**cohort.settings, "strength": strengths}),)

    def client_update(self, task, memory, message, data, context):
        trained = self.local.train(task, message.model, data, context)
        draw = context.key.fold("noise of my own").torch()
        strength = context.setting["strength"]

        def noisy(x):
            return x + strength * torch.randn(x.shape, generator=draw) if x.is_floating_point() else x

        update = tree_map(noisy, trained.update(message.model))
        return memory, Reply(ModelUpdate(update), data.weight, {"strength": torch.tensor(strength)})


@dataclass(frozen=True)
class NoisyStart(RandomlyWeighted):
    """Starts from a noisy model, and draws from the same key again after training."""

    def client_training(self, task, memory, message, data, context):
        draw = context.key.fold("start").torch()
        params = tree_map(lambda p: p + 1e-3 * torch.randn(p.shape, generator=draw), message.model.params)
        start = Weights(params, message.model.buffers)
        trained = yield Start(start, self.terms)
        update = subtract(trained.weights, message.model)
        return memory, Reply(ModelUpdate(update), data.weight, {"drawn": torch.rand((), generator=draw)})


@dataclass(frozen=True)
class BreaksAtSomeClients(RandomlyWeighted):
    """Raises an error at clients that hold just so many samples."""

    breaks_at: int = 0

    def client_training(self, task, memory, message, data, context):
        if data.count == self.breaks_at:
            raise OSError("the disk is gone")
        trained = yield Start(message.model)
        return memory, Reply(ModelUpdate(trained.update(message.model)), data.weight, {})


@dataclass(frozen=True)
class WritesToItsUpdate(RandomlyWeighted):
    """Multiplies its update in place, beyond what can be squared."""

    def client_training(self, task, memory, message, data, context):
        trained = yield Start(message.model, only_update=True)
        update = trained.update(message.model)
        for value in update.params.values():
            value.add_(1e30)
        return memory, Reply(ModelUpdate(update), data.weight, {})


@dataclass(frozen=True)
class WritesToTheUpdateOfABlock(RandomlyWeighted):
    """The same, for all clients of a block in one call."""

    @for_blocks
    def client_training(self, task, memory, message, data, context):
        return (yield from WritesToItsUpdate.client_training(self, task, memory, message, data, context))


@dataclass(frozen=True)
class RemembersTheLoss(RandomlyWeighted):
    """Keeps what a block's clients have in common, in place of what each of them should keep."""

    def client_init(self, task, key):
        return torch.zeros(())

    @for_blocks
    def client_training(self, task, memory, message, data, context):
        trained = yield Start(message.model, only_update=True)
        return trained.loss, Reply(ModelUpdate(trained.update(message.model)), data.weight, {})


@dataclass(frozen=True)
class SaysMoreAndMore(RandomlyWeighted):
    """Serves blocks, with one more number in the replies of every round."""

    @for_blocks
    def client_training(self, task, memory, message, data, context):
        trained = yield Start(message.model, only_update=True)
        metrics = {f"loss{i}": trained.loss for i in range(context.round + 1)}
        return memory, Reply(ModelUpdate(trained.update(message.model)), data.weight, metrics)


@dataclass(frozen=True)
class AsksForItsOwn(RandomlyWeighted):
    """Serves blocks, but asks for what each client has of its own."""

    what: str = "key"

    @for_blocks
    def client_training(self, task, memory, message, data, context):
        if self.what == "key":
            context.key.fold("mine")
        elif self.what == "setting":
            context.setting.get("rank")
        elif self.what == "data":
            data.count  # noqa: B018
        trained = yield Start(message.model, only_update=self.what != "weights")
        return memory, Reply(ModelUpdate(trained.update(message.model)), data.weight, {})


@dataclass(frozen=True)
class CountsItsReplies(AveragingMethod):
    """Averages as FedAvg does, and counts replies in `fold` alone."""

    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "uniform"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def begin(self, state, cohort):
        return (self.averaging.begin(state, cohort), 0)

    def fold(self, acc, client, sent, reply):
        return (self.averaging.fold(acc[0], client, sent.model, reply.payload.update, reply), acc[1] + 1)

    def finish(self, task, state, acc, moment):
        state, metrics = self.averaging.finish(task, state, acc[0], moment)
        return state, {**metrics, "kept": acc[1]}


class Drift(NamedTuple):
    times: int
    drift: Any  # of parameters


@dataclass(frozen=True)
class TrainsTwice(RandomlyWeighted):
    """Trains twice, the second time against where it drifted to, asks for a loss between, and remembers."""

    def client_init(self, task, key):
        return Drift(0, zeros_like(task.init(key).params))

    def client_training(self, task, memory, message, data, context):
        first = yield Start(message.model, shift=tree_map(lambda d: 0.01 * d, memory.drift))
        between, drift = first.weights, first.update(message.model).params
        wobble = context.key.fold("wobble").torch()
        params = tree_map(lambda p: p + 1e-3 * torch.randn(p.shape, generator=wobble), between.params)
        loss = yield ComputeLoss(between)
        second = yield Start(Weights(params, between.buffers))
        update = subtract(second.weights, message.model)
        times = torch.tensor(float(memory.times + 1))
        return Drift(memory.times + 1, add(memory.drift, drift)), Reply(
            ModelUpdate(update), data.weight, {"times": times, "between": loss, "train_loss": second.loss}
        )


@dataclass(frozen=True)
class MedianNorm(Aggregator):
    """Takes the update with the median norm, plus half of what it took before."""

    def init(self, model):
        return zeros_like(model.params)

    def begin(self, state, model, cohort):
        return ()

    def fold(self, acc, client, sent, update, weight):
        return (*acc, (client, update))

    def finish(self, task, state, acc, moment):
        if not acc:
            return Outcome(state, Weights({}, {}))
        norms = sorted(
            (sum(float(v.double().square().sum()) for v in update.params.values()), client, update)
            for client, update in acc
        )
        _, client, taken = norms[len(norms) // 2]
        step = tree_map(lambda s, v: 0.5 * s + v.double(), state, taken.params)
        kept = tree_map(lambda v: v.float(), step)
        buffers = {name: v.double() for name, v in taken.buffers.items() if v.is_floating_point()}
        return Outcome(kept, Weights(step, buffers), {client: 1.0}, {"of": len(acc)})


@dataclass(frozen=True)
class HalfSteps(ServerOptimizer):
    """Takes half a step, and the half that it left out before."""

    def init(self, params):
        return {}

    def step(self, state, step):
        taken = {name: 0.5 * value + state.get(name, 0.0) for name, value in step.items()}
        return {name: 0.5 * value for name, value in step.items()}, taken


@dataclass(frozen=True)
class LargestUpdates(Selector):
    """Prefers clients whose last update was large, ties at random; tells each how often it came."""

    count: int = 4

    def init(self):
        return {}

    def profile(self, data):
        return data.label_counts

    def admit(self, state, profiles):
        return {**state, **{client: (0, float(counts.max())) for client, counts in profiles.items()}}

    def select(self, state, available, reports, moment):
        ties = moment.key.numpy().random(len(available))
        order = sorted(range(len(available)), key=lambda i: (-state[available[i]][1], ties[i]))
        ids = tuple(sorted(available[i] for i in order[: self.count]))
        return Cohort(ids, {"times": tuple(state[i][0] for i in ids)}, len(available))

    def observe(self, state, client, reply, seconds):
        update = getattr(reply.payload, "update", None)
        length = 0.0 if update is None else sum(float(v.abs().sum()) for v in update.params.values())
        return {**state, client: (state[client][0] + 1, length)}
