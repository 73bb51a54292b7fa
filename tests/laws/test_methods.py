"""Laws that every method of the catalogue keeps."""

import copy
from dataclasses import replace

import pytest
import torch
from toy import KEY, NORMED, play, same, setup, spec, table
from wire import over_the_wire

import shoal
from shoal.core.engine import Work
from shoal.core.errors import SpecError
from shoal.core.tree import tensors
from shoal.core.types import Cohort, Context, Moment, message_for
from shoal.loop import advance, start
from shoal.methods import METHODS
from shoal.runs.build import as_method, build
from shoal.spec import dump_spec, from_table, to_table

MOMENT = Moment(1, 0, True, KEY)
EVERY = pytest.mark.parametrize("name", METHODS)
EVERY_MODEL = pytest.mark.parametrize(("name", "norm"), NORMED)


def with_norm(norm):
    return {"task": {"dataset": "toy:blobs", "model": "toy:net", "norm": norm}}


def close(first, second, tolerance):
    return all(
        torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance)
        for a, b in zip(tensors(first), tensors(second), strict=True)
    )


@EVERY_MODEL
@pytest.mark.parametrize("codec", ["raw", "float16"])
@pytest.mark.filterwarnings("ignore:with a lossy codec")
def test_the_wire_changes_no_bit(name, norm, codec):
    chosen = spec(name, **with_norm(norm), codec=codec)
    here, there = build(chosen), over_the_wire(chosen)
    at_home, away = play(here, 2), play(there, 2)
    assert same(at_home.state, away.state)
    for client, version in at_home.accepted.items():
        assert same(
            here.federation.engine.memory(client, version), there.federation.engine.memory(client, version)
        )


@EVERY
def test_same_seed_same_bits_other_seed_other_bits(name):
    first, again, other = (
        shoal.run(table(name, seed=seed, rounds=2, evaluate={"every": 1})) for seed in (1, 1, 2)
    )
    assert first.weights_sha256 == again.weights_sha256
    assert first.memory_sha256 == again.memory_sha256
    drop = {"seconds"}
    for one, two in zip(first.records, again.records, strict=True):
        assert {k: v for k, v in one.items() if k not in drop} == {
            k: v for k, v in two.items() if k not in drop
        }
    assert (first.weights_sha256, first.memory_sha256) != (other.weights_sha256, other.memory_sha256)


class CrashError(Exception):
    pass


@EVERY_MODEL
def test_a_resumed_run_equals_an_uninterrupted_one(name, norm, tmp_path):
    def crash(record):
        if record["round"] == 2:
            raise CrashError

    tables = table(name, rounds=4, evaluate={"every": 1}, **with_norm(norm))
    whole = shoal.run(tables)
    with pytest.raises(CrashError):
        shoal.run(tables, tmp_path / "run", watcher=crash)
    resumed = shoal.resume(tmp_path / "run", report=False)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.memory_sha256 == whole.memory_sha256
    assert [r["accuracy"] for r in resumed.records] == [r["accuracy"] for r in whole.records]


@EVERY_MODEL
def test_no_stage_changes_its_inputs(name, norm):
    made = setup(name, **with_norm(norm))
    federation, method = made.federation, made.federation.method
    state = play(made, 1).state
    cohort = Cohort((1, 4, 6), {}, 8)
    before = copy.deepcopy(state)
    message = method.dispatch(federation.task, state, cohort, MOMENT)
    sent = copy.deepcopy(messages(message, cohort))
    acc = method.begin(state, cohort)
    for position, client in enumerate(cohort.ids):
        memory = made.side.fresh.method
        kept = copy.deepcopy(memory)
        data = made.side.data.train(
            client, method.batching, federation.key.fold(client), full=norm == "batch"
        )
        context = Context(1, 0, {}, federation.key.fold("client", client))
        mine = message_for(message, position)
        _, reply = method.client_update(federation.task, memory, mine, data, context)
        given = copy.deepcopy(reply)
        travelled = method.received(method.upload(reply, {}), mine)
        acc = method.fold(acc, client, mine, travelled)
        assert same(memory, kept)
        assert same(reply, given)
    method.finish(federation.task, state, acc, MOMENT)
    assert same(state, before)
    assert same(messages(message, cohort), sent)


def messages(message, cohort):
    """What each client gets: rows of a message may be made only when they are asked for."""
    return [message_for(message, position) for position in range(len(cohort.ids))]


def singles(deliveries):
    return [single for delivery in deliveries for single in delivery.singles()]


def replies_of(made, state, cohort):
    federation = made.federation
    message = federation.method.dispatch(federation.task, state, cohort, MOMENT)
    work = Work("update", 1, 0, {})
    return singles(federation.engine.exchange(work, cohort, message, federation.key))


def folded(made, state, cohort, deliveries):
    method = made.federation.method
    acc = method.begin(state, cohort)
    for delivery in deliveries:
        acc = method.fold(
            acc, delivery.clients[0], delivery.sent, method.received(delivery.reply, delivery.sent)
        )
    return method.finish(made.federation.task, state, acc, MOMENT)[0]


@EVERY_MODEL
def test_the_order_of_replies_is_irrelevant_and_one_or_none_is_enough(name, norm):
    made = setup(name, **with_norm(norm))
    state = start(made.federation).state
    cohort = Cohort((0, 2, 3, 5), {}, 8)
    replies = replies_of(made, state, cohort)
    forward, backward = folded(made, state, cohort, replies), folded(made, state, cohort, replies[::-1])
    assert close(forward, backward, 1e-6)
    for few in (replies[:1], []):
        found = folded(made, state, cohort, few)
        assert all(
            bool(torch.isfinite(leaf.double()).all())
            for leaf in tensors(made.federation.method.models(found))
        )
    assert same(made.federation.method.models(found), made.federation.method.models(state))


class Arriving:
    """An engine in which half of the clients come in the second round."""

    def __init__(self, engine):
        self._engine = engine

    def clients(self, round):
        return range(4) if round == 0 else range(8)

    def __getattr__(self, name):
        return getattr(self._engine, name)


@EVERY
def test_survives_late_arrivals(name):
    made = setup(name, selector="all")
    made = made._replace(federation=replace(made.federation, engine=Arriving(made.federation.engine)))
    progress, first = advance(made.federation, start(made.federation))
    _, second = advance(made.federation, progress)
    assert sorted(first.cohort) == [0, 1, 2, 3]
    assert sorted(second.cohort) == list(range(8))


@EVERY
def test_a_spec_describes_it_completely(name):
    chosen = spec(name)
    assert from_table(to_table(chosen)) == chosen
    assert as_method(from_table(to_table(chosen)).method) == as_method(chosen.method)
    built = replace(chosen, method=as_method(chosen.method))
    assert from_table(to_table(built)).method == built.method
    assert f'name = "{name}"' in dump_spec(chosen)


@EVERY_MODEL
def test_learns_the_toy_task(name, norm):
    result = shoal.run(table(name, legs=16, rounds=12, selector="all", **with_norm(norm)))
    assert result.mean_client_accuracy > 0.85


@EVERY
def test_a_model_that_it_cannot_learn_is_refused(name):
    if (name, "batch") not in NORMED:
        with pytest.raises(SpecError, match="cannot learn a model with BatchNorm"):
            setup(name, **with_norm("batch"))


@EVERY
def test_a_rejected_reply_leaves_no_trace(name):
    """A client whose reply is lost twice and then comes through has the memory of one that came once."""

    class Lossy:
        def __init__(self, engine):
            self._engine = engine

        def exchange(self, work, cohort, message, key):
            for delivery in singles(self._engine.exchange(work, cohort, message, key)):
                lost = work.verb == "update" and work.round < 2 and delivery.clients[0] == 0
                yield delivery._replace(reply=None, reason="lost") if lost else delivery

        def __getattr__(self, name):
            return getattr(self._engine, name)

    made = setup(name, selector="all")
    lossy = made._replace(federation=replace(made.federation, engine=Lossy(made.federation.engine)))
    progress, record = advance(lossy.federation, start(lossy.federation))
    assert set(record.rejected) == {(0, "lost")}
    progress, _ = advance(lossy.federation, progress)
    assert 0 not in progress.accepted
    fresh = setup(name, selector="all")
    if fresh.side.remembers:
        message = lossy.federation.method.dispatch(
            fresh.federation.task, progress.state, Cohort((0,), {}, 8), MOMENT
        )
        for engine in (lossy.federation.engine, fresh.federation.engine):
            work = Work("update", 2, 0, progress.accepted)
            list(engine.exchange(work, Cohort((0,), {}, 8), message, fresh.federation.key))
        assert same(lossy.federation.engine.memory(0, (2, 0)), fresh.federation.engine.memory(0, (2, 0)))
