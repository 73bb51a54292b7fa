"""The round loop; there is only one.

    admit -> select -> for each leg: dispatch -> exchange -> gate -> fold ... -> finish -> observe

It knows only the protocols of methods, selectors and engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shoal.core.codec import Packet
from shoal.core.engine import Delivery, Engine, Stage, Work
from shoal.core.errors import StageError
from shoal.core.gate import Gate
from shoal.core.key import Key
from shoal.core.method import Method, folds_blocks
from shoal.core.selector import Selector
from shoal.core.task import Task
from shoal.core.tree import all_finite, owners
from shoal.core.types import Acc, Cohort, Metrics, Moment, Report, State, Version
from shoal.round_clock import NO_DEADLINE, Deadline, RoundClock
from shoal.round_faults import NO_FAULTS, FaultRates
from shoal.round_stats import Tally


@dataclass(frozen=True)
class Federation:
    """The parts of a run that do not change from round to round."""

    task: Task
    method: Method
    selector: Selector
    engine: Engine
    key: Key  # for everything that is drawn at random, except initial weights
    model_key: Key  # for initial weights
    remembers: bool  # whether clients have a memory
    min_replies: int = 1  # with fewer replies, an exchange is treated as if it had none
    deadline: Deadline = NO_DEADLINE  # until when replies count
    faults: FaultRates = NO_FAULTS  # what goes wrong between server and clients


class Progress(NamedTuple):
    """The state of a run between two rounds, without the clients' memories."""

    round: int  # the number of finished rounds
    state: State
    selector: Any
    accepted: Mapping[int, Version]  # of each client's memory
    known: frozenset[int]  # the clients that have been admitted, if profiles are used


class Round(NamedTuple):
    """The record of one round."""

    cohort: tuple[int, ...]
    bytes_down: int
    bytes_up: int
    rejected: tuple[tuple[int, str], ...]
    metrics: Metrics
    seconds: float | None = None  # virtual; None without devices


def start(federation: Federation) -> Progress:
    """The progress before the first round."""
    with Stage("init", None, 0):
        state = federation.method.init(federation.task, federation.model_key)
        return Progress(0, state, federation.selector.init(), {}, frozenset())


def advance(federation: Federation, progress: Progress) -> tuple[Progress, Round]:
    """Run one round."""
    key, round = federation.key.fold("round", progress.round), progress.round
    tally = Tally(RoundClock(federation.deadline))
    progress = _admit(federation, progress, key.fold("admit"), tally)
    with Stage("select", None, round):
        engine = federation.engine
        moment = Moment(round, 0, False, key.fold("select"))
        cohort, reports = _selected(federation, progress, moment, tally)
        cohort, samples = _ordered(engine, cohort)
        asked = moment._replace(key=key.fold("legs"), reports=reports)
        # an empty cohort has no legs, so methods need not handle empty rounds
        legs = federation.method.legs(progress.state, cohort, asked) if cohort.ids else ()
        tally.metrics.update(federation.method.planned(progress.state, cohort, asked) if cohort.ids else {})
    walk = RoundWalk(federation, progress, legs, samples, key, tally)
    engine.walk(walk)
    members = tuple(dict.fromkeys(client for leg in dict.fromkeys(map(_ids, legs)) for client in leg))
    refused = tuple(tally.rejected)
    record = Round(members, tally.down, tally.up, refused, tally.recorded(), tally.clock.seconds)
    return walk.progress._replace(round=round + 1), record


def _ids(leg: Cohort) -> tuple[int, ...]:
    return leg.ids


def _selected(
    federation: Federation, progress: Progress, moment: Moment, tally: Tally
) -> tuple[Cohort, Mapping[int, Report]]:
    """The cohort of a round, empty if no client can be reached, and the clients' device reports."""
    engine, selector = federation.engine, federation.selector
    available = engine.clients(moment.round)
    asked = selector.asks_report or federation.method.asks_report
    reports = engine.reports(moment.round) if asked else {}
    tally.up += sum(Packet(report).nbytes for report in reports.values())
    if not len(available):
        return Cohort((), {}, 0), reports
    return selector.select(progress.selector, available, reports, moment), reports


class RoundWalk:
    """The legs of a round, run one after another."""

    def __init__(
        self,
        federation: Federation,
        progress: Progress,
        legs: tuple[Cohort, ...],
        samples: Mapping[int, int],
        key: Key,
        tally: Tally,
    ) -> None:
        self.legs, self.progress, self._samples = legs, progress, samples
        self._federation, self._key, self._tally = federation, key, tally
        self._leg = 0

    @property
    def state(self) -> State:
        """The current server state."""
        return self.progress.state

    @property
    def complete(self) -> bool:
        """Whether all replies so far were accepted, and those to come will arrive."""
        return not self._tally.rejected and not self._federation.faults.active

    def step(self) -> None:
        """Run the next leg."""
        leg, key = self._leg, self._key.fold("leg", self._leg)
        moment = Moment(self.progress.round, leg, leg == len(self.legs) - 1, key.fold("server"))
        members = self.legs[leg]
        held = self._samples
        if members.ids != tuple(held):
            held = {client: held[client] for client in members.ids}
        gate = Gate(self._federation.method, self._federation.task, held, (moment.round, leg))
        self.progress = _leg(self._federation, self.progress, members, moment, gate, key, self._tally)
        self._leg += 1

    def arrive(self, state: State, metrics: Metrics) -> None:
        """Jump to the end of the round; each skipped leg is counted with the bytes of the last one run."""
        self._tally.repeat(len(self.legs) - self._leg)
        self._tally.metrics.update(metrics)
        self.progress = self.progress._replace(state=state)


def _leg(
    federation: Federation,
    progress: Progress,
    cohort: Cohort,
    moment: Moment,
    gate: Gate,
    key: Key,
    tally: Tally,
) -> Progress:
    method, task, engine = federation.method, federation.task, federation.engine
    with Stage("dispatch", None, moment.round):
        message = method.dispatch(task, progress.state, cohort, moment)
        acc = method.begin(progress.state, cohort)
    work = Work("update", moment.round, moment.leg, progress.accepted)
    accepted, selector = dict(progress.accepted), progress.selector
    tally.next_leg(cohort)
    arriving = federation.faults.inject(engine.exchange(work, cohort, message, key), key.fold("faults"))
    for delivery in tally.clock.timed(arriving, len(cohort.ids)):
        for usable in tally.take(delivery, gate):
            with Stage("fold", usable.clients[0], moment.round):
                acc = _fold(method, acc, usable)
                selector = _observe(federation.selector, selector, usable)
            if federation.remembers:
                accepted |= dict.fromkeys(usable.clients, work.version)
    if tally.too_few(federation.min_replies):
        acc = method.begin(progress.state, cohort)
    else:
        progress = progress._replace(accepted=accepted, selector=selector)
    if not tally.replies and not moment.last:
        return progress
    with Stage("finish", None, moment.round):
        state, metrics = method.finish(task, progress.state, acc, moment)
    _check_finite(method, progress.state, state, moment.round, tally)
    tally.metrics.update(metrics)
    return progress._replace(state=state)


def _fold(method: Method, acc: Acc, delivery: Delivery) -> Acc:
    assert delivery.reply is not None
    if delivery.stacked and folds_blocks(method):
        return method.fold_block(acc, delivery.clients, delivery.sent, delivery.reply)
    for single in delivery.singles():
        assert single.reply is not None
        acc = method.fold(acc, single.clients[0], single.sent, single.reply)
    return acc


def _observe(selector: Selector, state: Any, delivery: Delivery) -> Any:
    if not selector.observes:
        return state
    for single in delivery.singles():
        assert single.reply is not None
        seconds = single.spent[0].total if single.spent else 0.0
        state = selector.observe(state, single.clients[0], single.reply, seconds)
    return state


def _check_finite(method: Method, before: State, state: State, round: int, tally: Tally) -> None:
    """End the run if a new model contains infinities or NaN: further rounds cannot repair it."""
    known = {id(tensor) for model in method.models(before).values() for tensor in owners(model)}
    for name, model in method.models(state).items():
        if not all_finite([tensor for tensor in owners(model) if id(tensor) not in known]):
            called = f"the model {name}" if name else "the model"
            raise StageError(
                f"{called} of {type(method).__name__} is no longer finite after round {round + 1}, "
                f"with {tally.replies} replies accepted and {len(tally.rejected)} refused; "
                "a smaller local.lr may help, and so may a robust aggregator"
            )


def _admit(federation: Federation, progress: Progress, key: Key, tally: Tally) -> Progress:
    """Ask new clients for their profiles, if the method or the selector uses them."""
    method, selector, engine = federation.method, federation.selector, federation.engine
    if not (method.asks_profile or selector.asks_profile):
        return progress
    new = [c for c in engine.clients(progress.round) if c not in progress.known]
    work = Work("profile", progress.round, 0, progress.accepted)
    cohort = Cohort(tuple(new), {}, len(progress.known) + len(new))
    gate = Gate(method, federation.task, dict.fromkeys(new, 0), work.version)
    arriving = federation.faults.inject(engine.exchange(work, cohort, (), key), key.fold("faults"))
    answers = {
        usable.clients[0]: usable.reply.payload
        for delivery in arriving
        for usable in tally.take_profile(delivery, gate)
        if usable.reply is not None
    }
    with Stage("admit", None, progress.round):
        moment = Moment(progress.round, 0, False, key)
        return progress._replace(
            state=method.admit(progress.state, {c: a["method"] for c, a in answers.items()}, moment),
            selector=selector.admit(progress.selector, {c: a["selector"] for c, a in answers.items()}),
            known=progress.known | answers.keys(),
        )


def _ordered(engine: Engine, cohort: Cohort) -> tuple[Cohort, dict[int, int]]:
    """The cohort, largest clients first, then by id: long jobs start first, and all engines fold alike.

    Also returns the number of samples that each client has declared, in that order.
    """
    samples = engine.samples(cohort.ids) if cohort.ids else ()
    order = sorted(zip([-n for n in samples], cohort.ids, range(len(cohort.ids)), strict=True))
    ordered = cohort.take([position for _, _, position in order])
    return ordered, {client: -negative for negative, client, _ in order}
