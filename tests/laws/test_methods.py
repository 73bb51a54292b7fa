"""Laws that every method of the catalogue keeps."""

import copy
import json
from dataclasses import replace

import pytest
import torch
from toy import BATCH_NORM, DENSE, KEY, NORMED, after, hardest_task, play, same, setup, spec, table

import shoal
from shoal.core.engine import Work
from shoal.core.errors import SpecError
from shoal.core.tree import tensors
from shoal.core.types import Cohort, Context, Moment, message_for
from shoal.loop import advance, start
from shoal.methods import METHODS
from shoal.runs.build import as_method
from shoal.spec import dump_spec, from_table, to_table

MOMENT = Moment(1, 0, True, KEY)
EVERY = pytest.mark.parametrize("name", METHODS)
TASKS = {"none": DENSE, "batch": BATCH_NORM}
EVERY_MODEL = pytest.mark.parametrize(("name", "norm"), NORMED)


def close(first, second, tolerance):
    return all(
        torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance)
        for a, b in zip(tensors(first), tensors(second), strict=True)
    )


class CrashError(Exception):
    pass


@EVERY
def test_a_resumed_run_equals_an_uninterrupted_one(name, tmp_path):
    """To the bit, and in every record but for the time: so the same seed gives the same bits as well."""

    def crash(record):
        if record["round"] == 2:
            raise CrashError

    tables = table(name, evaluate={"every": 1}, task=hardest_task(name))
    whole = shoal.run(tables)
    with pytest.raises(CrashError):
        shoal.run(tables, tmp_path / "run", watcher=crash)
    resumed = shoal.resume(tmp_path / "run", report=False)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.memory_sha256 == whole.memory_sha256
    assert lines(resumed) == lines(whole)


def lines(result):
    """The records as they are written; how long a round took is not compared."""
    return [json.dumps({**record, "seconds": 0}) for record in result.records]


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedgen", "fsi"])
def test_another_seed_gives_other_bits(name):
    first, second = (after(setup(name, seed=seed), 1) for seed in (1, 2))
    assert not same(first.state, second.state)


@EVERY_MODEL
def test_no_stage_changes_its_inputs(name, norm):
    made = setup(name, task=TASKS[norm])
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


@EVERY
def test_the_order_of_replies_is_irrelevant_and_one_or_none_is_enough(name):
    made = setup(name, task=hardest_task(name))
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


class LateArrivals:
    """An engine whose clients 4 to 7 come in the second round."""

    def __init__(self, engine):
        self._engine = engine

    def clients(self, round):
        return range(4) if round == 0 else range(8)

    def __getattr__(self, name):
        return getattr(self._engine, name)


@EVERY
def test_clients_may_arrive_late(name):
    made = setup(name, selector="all")
    made = made._replace(federation=replace(made.federation, engine=LateArrivals(made.federation.engine)))
    progress, first = advance(made.federation, start(made.federation))
    _, second = advance(made.federation, progress)
    if made.federation.method.asks_report:  # it chooses some of them
        assert set(first.cohort) <= set(range(4))
        assert set(second.cohort) - set(range(4))
    else:
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


SLOW_LEARNERS = {"krum": 12, "bulyan": 12, "fedcpa": 6, "flame": 6, "dsvd": 6, "pso": 6}  # rounds


@EVERY
def test_learns_the_toy_task(name):
    rounds = SLOW_LEARNERS.get(name, 4)
    chosen = {"task": hardest_task(name), "selector": "all", "engine": {"mode": "serial"}}
    result = shoal.run(table(name, legs=16, rounds=rounds, **chosen))
    assert result.mean_client_accuracy > 0.85


@pytest.mark.parametrize("name", [name for name in METHODS if (name, "batch") not in NORMED])
def test_a_model_that_it_cannot_learn_is_refused(name):
    with pytest.raises(SpecError, match="cannot train a model with BatchNorm"):
        setup(name, task=BATCH_NORM)


@pytest.mark.parametrize("name", [name for name in METHODS if as_method(METHODS[name]()).remembers])
def test_a_lost_reply_leaves_no_trace_in_its_clients_memory(name):
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

    made, fresh = setup(name, selector="all"), setup(name, selector="all")
    federation = replace(made.federation, engine=Lossy(made.federation.engine))
    progress = start(federation)
    for _ in range(2):
        progress, record = advance(federation, progress)
        assert set(record.rejected) == {(0, "lost")}
        assert set(progress.accepted) == set(range(1, 8))
    alone = Cohort((0,), {}, 8)
    message = federation.method.dispatch(federation.task, progress.state, alone, MOMENT)
    for engine in (federation.engine, fresh.federation.engine):
        list(engine.exchange(Work("update", 2, 0, progress.accepted), alone, message, federation.key))
    assert same(federation.engine.memory(0, (2, 0)), fresh.federation.engine.memory(0, (2, 0)))
