"""What the protocol allows works with every engine, also after a resume: see `protocol_probes.py`."""

from dataclasses import replace

import protocol_probes
import pytest
import torch
from toy import play, same, setup, spec, table
from wire import over_the_wire

import shoal
from shoal.core.types import Cohort, Moment, Reply
from shoal.loop import advance, start
from shoal.runs.build import build

PROBES = ["ModelChain", "RandomSearch", "MedianUpdate", "ClusterByLabel"]


def method_table(name, **changes):
    tables = table({"name": f"protocol_probes:{name}"}, **changes)
    if name == "RandomSearch":
        del tables["local"]
    return tables


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize(
    "axes", [{}, {"selector": "protocol_probes:BitsBySize", "codec": "protocol_probes:Quantizer"}]
)
def test_the_wire_changes_no_bit(name, axes):
    chosen = shoal.spec.from_table(method_table(name, **axes))
    here, there = build(chosen), over_the_wire(chosen)
    assert same(play(here).state, play(there).state)


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize(
    "axes", [{}, {"selector": "protocol_probes:BitsBySize", "codec": "protocol_probes:Quantizer"}]
)
def test_a_resumed_run_equals_an_uninterrupted_one(name, axes, tmp_path):
    class CrashError(Exception):
        pass

    def crash(record):
        if record["round"] == 2:
            raise CrashError

    tables = method_table(name, rounds=4, **axes)
    whole = shoal.run(tables)
    with pytest.raises(CrashError):
        shoal.run(tables, tmp_path / "run", crash)
    resumed = shoal.resume(tmp_path / "run", report=False)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.memory_sha256 == whole.memory_sha256
    assert resumed.final_accuracy == whole.final_accuracy


def test_a_chain_hands_the_model_on():
    """Two clients in one chain are one after the other, by hand."""
    made = setup(
        {"name": "protocol_probes:ModelChain", "length": 2}, selector={"name": "uniform", "count": 2}
    )
    federation = made.federation
    begun = start(federation)
    progress, record = advance(federation, begun)
    first, second = record.cohort
    assert made.shards.count(first) >= made.shards.count(second)
    model = begun.state.model
    key = federation.key.fold("round", 0)
    for leg, client in enumerate((first, second)):
        context_key = key.fold("leg", leg).fold("client", client)
        data = made.side.data.train(
            client, federation.method.batching, context_key.fold("batches"), full=False
        )
        context = shoal.core.types.Context(0, leg, {}, context_key)
        model = federation.method.local.train(federation.task, model, data, context).weights
    for name, value in model.params.items():
        torch.testing.assert_close(progress.state.model.params[name], value, rtol=1e-5, atol=1e-6)
    assert record.metrics["chains"] == 1


def test_a_lost_member_of_a_chain_is_skipped():
    class Losing:
        def __init__(self, engine):
            self._engine = engine

        def exchange(self, work, cohort, message, key):
            for delivery in self._engine.exchange(work, cohort, message, key):
                yield delivery._replace(reply=None, reason="lost") if work.leg == 1 else delivery

        def __getattr__(self, name):
            return getattr(self._engine, name)

    made = setup(
        {"name": "protocol_probes:ModelChain", "length": 2}, selector={"name": "uniform", "count": 2}
    )
    federation = replace(made.federation, engine=Losing(made.federation.engine))
    progress, record = advance(federation, start(federation))
    assert record.rejected == ((record.cohort[1], "lost"),)
    alone = setup(
        {"name": "protocol_probes:ModelChain", "length": 1}, selector={"name": "uniform", "count": 2}
    )
    walked, _ = advance(alone.federation, start(alone.federation))
    assert same(progress.state.walking[0], walked.state.walking[0])


def test_losses_are_all_that_travels_up():
    result = shoal.run(method_table("RandomSearch", rounds=30, evaluate={"every": 0}))
    assert result.final_accuracy > 0.5
    best = [record["best_loss"] for record in result.records]
    assert best == sorted(best, reverse=True)
    assert result.bytes_up < result.bytes_down / 10


def test_newcomers_are_profiled_once_and_their_bytes_count():
    made = setup("protocol_probes:ClusterByLabel", selector="all")
    federation = made.federation

    class Arriving:
        asked: tuple[tuple[int, ...], ...] = ()

        def __init__(self, engine):
            self._engine = engine

        def clients(self, round):
            return range(5) if round == 0 else range(8)

        def exchange(self, work, cohort, message, key):
            if work.verb == "profile" and cohort.ids:
                self.asked = (*self.asked, cohort.ids)
            return self._engine.exchange(work, cohort, message, key)

        def __getattr__(self, name):
            return getattr(self._engine, name)

    engine = Arriving(federation.engine)
    federation = replace(federation, engine=engine)
    progress = start(federation)
    records = []
    for _ in range(3):
        progress, record = advance(federation, progress)
        records.append(record)
    assert engine.asked == ((0, 1, 2, 3, 4), (5, 6, 7))
    assert progress.known == frozenset(range(8))
    assert set(progress.state.home) == set(range(8))
    assert records[1].bytes_up > records[2].bytes_up  # the same replies and three profiles
    for client, home in progress.state.home.items():
        counts = made.side.data.train(client, None, federation.key, full=False).label_counts
        assert home == int(counts.argmax())


def test_settings_reach_the_codec():
    chosen = spec(selector="protocol_probes:BitsBySize", codec="protocol_probes:Quantizer")
    made = build(chosen)
    progress, _ = advance(made.federation, start(made.federation))
    moment = Moment(0, 0, False, made.federation.key)
    assert {"bits"} == set(made.federation.selector.select(progress.selector, range(8), {}, moment).settings)
    errors = {
        client: max(
            float(leaf.abs().max())
            for leaf in made.federation.engine.memory(client, version).codec.update.params.values()
        )
        for client, version in progress.accepted.items()
    }
    small = [errors[c] for c, n in progress.selector.items() if n < 40]
    large = [errors[c] for c, n in progress.selector.items() if n >= 40]
    assert small
    assert large
    assert min(small) > max(large)  # two bits lose more than eight


def test_a_method_may_gather_all_replies():
    made = setup("protocol_probes:MedianUpdate", selector="all")
    _, record = advance(made.federation, start(made.federation))
    assert record.metrics["seen"] == 8


def test_a_cohort_can_be_reordered_with_its_settings():
    cohort = Cohort((4, 7, 9), {"bits": (1, 2, 3)}, 10)
    turned = cohort.take([2, 0])
    assert turned == Cohort((9, 4), {"bits": (3, 1)}, 10)
    assert turned.setting(1) == {"bits": 1}


def many_legs(**changes):
    tables = table({"name": "protocol_probes:ManyLegs", **changes.pop("method", {})}, **changes)
    del tables["local"]
    return build(shoal.spec.from_table(tables))


def rounds(made, count=2):
    progress, records = start(made.federation), []
    for _ in range(count):
        progress, record = advance(made.federation, progress)
        records.append(record)
    return progress, records


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_shortcut_changes_nothing_but_the_time(count):
    short, long = (
        rounds(many_legs(method={"count": count, "short": shortcut})) for shortcut in (True, False)
    )
    assert short == long


def refuses(*_):
    raise AssertionError("a shortcut was taken")


@pytest.mark.parametrize(
    "axes",
    [
        {"attack": {"name": "label_flip", "fraction": 0.5}},
        {"privacy": {"name": "gaussian", "noise": 1.0}},
        {"codec": "float16"},
        {"method": {"count": 2}},
    ],
)
def test_no_shortcut_where_replies_are_changed_on_their_way(axes, monkeypatch):
    made = many_legs(**axes)
    monkeypatch.setattr(type(made.federation.method), "shortcut", refuses)
    rounds(made)


def test_a_method_may_see_numbers_that_are_not_finite(monkeypatch):
    method = type(many_legs().federation.method)
    told = protocol_probes.Total(torch.tensor(torch.inf, dtype=torch.float64))
    monkeypatch.setattr(
        method, "client_update", lambda *args: ((), Reply(told, args[4].weight, {}))
    )  # args: self, task, memory, message, data, context
    monkeypatch.setattr(method, "shortcut", refuses)
    made = many_legs(method={"count": 2})
    progress, (record,) = rounds(made, 1)
    assert not record.rejected
    assert progress.state.total == torch.inf
    monkeypatch.setattr(method, "expects", lambda *args: {})
    progress, (record,) = rounds(made, 1)
    assert len(record.rejected) == 2 * len(record.cohort)
    assert progress.state.total == 0
