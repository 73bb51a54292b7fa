"""The only round loop.

    admit -> select -> for each leg: dispatch -> exchange -> fold ... -> finish -> observe

It knows no method, no selector, no engine: only their protocols.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shoal.core.engine import Delivery, Engine, Work, stage
from shoal.core.key import Key
from shoal.core.method import Method
from shoal.core.selector import Selector
from shoal.core.task import Task
from shoal.core.tree import all_finite
from shoal.core.types import Acc, Cohort, Metrics, Reply, State, Version

STAGED = 2  # legs of a round that always are exchanges; what a third sends is what the second sent


@dataclass(frozen=True)
class Federation:
    """Everything that stays the same from round to round."""

    task: Task
    method: Method
    selector: Selector
    engine: Engine
    key: Key
    remembers: bool  # whether clients have a memory


class Progress(NamedTuple):
    """Everything that is remembered from round to round, but for the clients' memories."""

    round: int  # how many are done
    state: State
    selector: Any
    accepted: Mapping[int, Version]  # of each client's memory
    known: frozenset[int]  # the clients that were admitted, where anybody asks for profiles


class Round(NamedTuple):
    """What happened in one round."""

    cohort: tuple[int, ...]
    bytes_down: int
    bytes_up: int
    rejected: tuple[tuple[int, str], ...]
    metrics: Metrics


def start(federation: Federation) -> Progress:
    """Before the first round."""
    with stage("init", None, 0):
        state = federation.method.init(federation.task, federation.key.fold("init"))
        return Progress(0, state, federation.selector.init(), {}, frozenset())


def advance(federation: Federation, progress: Progress) -> tuple[Progress, Round]:
    """One round."""
    key = federation.key.fold("round", progress.round)
    tally = Tally(federation.method.may_be_nonfinite)
    progress = _admit(federation, progress, key.fold("admit"), tally)
    with stage("select", None, progress.round):
        available = federation.engine.clients(progress.round)
        cohort = federation.selector.select(progress.selector, available, key.fold("select"))
        cohort = _ordered(federation.engine, cohort)
        legs = federation.method.legs(progress.state, cohort)
    progress = _legs(federation, progress, legs, key, tally)
    record = Round(cohort.ids, tally.down, tally.up, tuple(tally.rejected), tally.means() | tally.metrics)
    return progress._replace(round=progress.round + 1), record


def _legs(
    federation: Federation, progress: Progress, legs: tuple[Cohort, ...], key: Key, tally: Tally
) -> Progress:
    """One after another, unless the engine knows a shortcut."""
    for leg, members in enumerate(legs):
        if leg == STAGED and (done := _fused(federation, progress, legs, key, tally)):
            return done
        tally.next_leg()
        progress = _leg(federation, progress, leg, members, key.fold("leg", leg), tally)
    return progress


def _fused(
    federation: Federation, progress: Progress, legs: tuple[Cohort, ...], key: Key, tally: Tally
) -> Progress | None:
    """After all legs of a round whose other ones would be like the last, if the engine can tell.

    The record then says what they would have cost.
    """
    alike = all(cohort is legs[0] for cohort in legs)
    if not alike or tally.rejected or federation.remembers or federation.selector.observes:
        return None
    rest = len(legs) - STAGED
    with stage("fused", None, progress.round):
        done = federation.engine.fused(legs[0], progress.state, key, rest)
    if done is None:
        return None
    state, metrics = done
    tally.repeat(rest)
    tally.metrics.update(metrics)
    return progress._replace(state=state)


def _leg(
    federation: Federation, progress: Progress, leg: int, cohort: Cohort, key: Key, tally: Tally
) -> Progress:
    method, task = federation.method, federation.task
    with stage("dispatch", None, progress.round):
        message = method.dispatch(task, progress.state, cohort, key.fold("dispatch"))
        acc = method.begin(progress.state, cohort)
    accepted, selector, replies = dict(progress.accepted), progress.selector, 0
    work = Work("update", progress.round, leg, progress.accepted)
    for delivery in federation.engine.exchange(work, cohort, message, key):
        for usable in tally.take(delivery):
            with stage("fold", usable.clients[0], progress.round):
                acc = _fold(method, acc, usable)
                selector = _observe(federation.selector, selector, usable)
            if federation.remembers:
                accepted |= dict.fromkeys(usable.clients, (progress.round, leg))
            replies += len(usable.clients)
    progress = progress._replace(accepted=accepted, selector=selector)
    if not replies:
        return progress
    with stage("finish", None, progress.round):
        state, metrics = method.finish(task, progress.state, acc, key.fold("finish"))
    tally.metrics.update(metrics)
    return progress._replace(state=state)


def _fold(method: Method, acc: Acc, delivery: Delivery) -> Acc:
    assert delivery.reply is not None
    if delivery.stacked:
        return method.fold_block(acc, delivery.clients, delivery.sent, delivery.reply)
    return method.fold(acc, delivery.clients[0], delivery.sent, delivery.reply)


def _observe(selector: Selector, state: Any, delivery: Delivery) -> Any:
    if not selector.observes:
        return state
    for single in delivery.singles():
        assert single.reply is not None
        state = selector.observe(state, single.clients[0], single.reply, single.seconds)
    return state


def _admit(federation: Federation, progress: Progress, key: Key, tally: Tally) -> Progress:
    """Ask clients that are new for their profiles, if the method or the selector wants them."""
    method, selector = federation.method, federation.selector
    if not (method.asks_profile or selector.asks_profile):
        return progress
    new = [c for c in federation.engine.clients(progress.round) if c not in progress.known]
    work = Work("profile", progress.round, 0, progress.accepted)
    cohort = Cohort(tuple(new), {}, len(progress.known) + len(new))
    answers = {
        usable.clients[0]: usable.reply.payload
        for delivery in federation.engine.exchange(work, cohort, (), key)
        for usable in tally.take(delivery)
        if usable.reply is not None
    }
    with stage("admit", None, progress.round):
        return progress._replace(
            state=method.admit(progress.state, {c: a["method"] for c, a in answers.items()}),
            selector=selector.admit(progress.selector, {c: a["selector"] for c, a in answers.items()}),
            known=progress.known | answers.keys(),
        )


def _ordered(engine: Engine, cohort: Cohort) -> Cohort:
    """By samples, descending, then by id: long jobs first, and one order of folding on every engine."""
    order = sorted(
        zip([-n for n in engine.samples(cohort.ids)], cohort.ids, range(len(cohort.ids)), strict=True)
    )
    return cohort.take([position for _, _, position in order])


class Tally:
    """What is counted during a round."""

    def __init__(self, may_be_nonfinite: frozenset[str]) -> None:
        self._unchecked = may_be_nonfinite
        self.down = self.up = 0
        self._before = (0, 0)  # this leg
        self.rejected: list[tuple[int, str]] = []
        self.metrics: dict[str, Any] = {}
        self._sums: dict[str, tuple[float, float]] = {}

    def next_leg(self) -> None:
        """What comes is counted to a new leg."""
        self._before = (self.down, self.up)

    def repeat(self, legs: int) -> None:
        """Count as much traffic again as in this leg, `legs` times."""
        down, up = self._before
        self.down, self.up = self.down + legs * (self.down - down), self.up + legs * (self.up - up)

    def take(self, delivery: Delivery) -> list[Delivery]:
        """Count a delivery; returns what of it can be used."""
        self.down += delivery.bytes_down
        self.up += delivery.bytes_up
        reason = delivery.reason or refusal(delivery.reply, self._unchecked)
        if reason and delivery.stacked and delivery.reply is not None:
            usable = [
                single
                for single in delivery.singles()
                if not self._refused(single, refusal(single.reply, self._unchecked))
            ]
        else:
            usable = [] if self._refused(delivery, reason) else [delivery]
        for accepted in usable:
            self._sum(accepted.reply)
        return usable

    def _refused(self, delivery: Delivery, reason: str) -> bool:
        if reason:
            self.rejected += [(client, reason) for client in delivery.clients]
        return bool(reason)

    def _sum(self, reply: Reply | None) -> None:
        assert reply is not None
        weights = [1.0] if reply.weight is None else reply.weight.reshape(-1).tolist()
        for name, values in reply.metrics.items():
            total, summed = self._sums.get(name, (0.0, 0.0))
            for weight, value in zip(weights, values.reshape(-1).tolist(), strict=True):
                total, summed = total + weight * value, summed + weight
            self._sums[name] = (total, summed)

    def means(self) -> dict[str, Any]:
        """The clients' metrics, averaged by their weights."""
        return {name: total / weights for name, (total, weights) in self._sums.items() if weights}


def refusal(reply: Reply | None, unchecked: frozenset[str] = frozenset()) -> str:
    """Why a reply, or one in a block of replies, cannot be used; empty if all can.

    `unchecked` names fields of the payload that may hold anything.
    """
    if reply is None:
        return "no reply"
    payload = reply.payload
    if unchecked and hasattr(payload, "_asdict"):
        payload = {name: value for name, value in payload._asdict().items() if name not in unchecked}
    if not all_finite((payload, reply.weight)):
        return "its numbers are not finite"
    if reply.weight is not None and float(reply.weight.min()) < 0:
        return f"its weight is negative: {float(reply.weight.min()):g}"
    return ""
