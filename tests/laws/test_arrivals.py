"""Laws of clients that come and go, for every method and every selector.

In round 1 half of the clients are there, in round 2 all of them, in round 3 nobody, then all again.
"""

import json
from dataclasses import replace

import pytest
from toy import after, same, setup, spec, table
from wire import over_the_wire

import shoal
from shoal.core.training import solver_of
from shoal.loop import advance, start
from shoal.methods import METHODS
from shoal.runs.build import as_method
from shoal.selectors import SELECTORS

ARRIVALS = {
    "name": "list",
    "join": [{"round": 2, "clients": "4-7"}, {"round": 4, "clients": "0-7"}],
    "leave": [{"round": 3, "clients": "0-7"}],
}
FORKED = ("fedbn", "local", "median", "fsi")  # run in worker processes; the others in blocks
EVERY = pytest.mark.parametrize("name", METHODS)


class CrashError(Exception):
    pass


def tables(name, mode):
    evaluate = {"every": 1, "finetune": 1 if solver_of(as_method(METHODS[name]())) else 0}
    return table(name, rounds=4, arrivals=ARRIVALS, evaluate=evaluate, engine={"mode": mode, "workers": 2})


def lines(result):
    return [json.dumps({**record, "seconds": 0}) for record in result.records]


@EVERY
def test_modes_and_a_crash_change_no_bit(name, tmp_path):
    """Crashes while nobody is there: all that is remembered of the absent then comes from a checkpoint."""

    def crash(record):
        if record["round"] == 3:
            raise CrashError

    one_by_one = shoal.run(tables(name, "serial"))
    mode = "workers" if name in FORKED else "block"
    with pytest.raises(CrashError):
        shoal.run(tables(name, mode), tmp_path / "run", watcher=crash)
    resumed = shoal.resume(tmp_path / "run", report=False)
    assert lines(resumed) == lines(one_by_one)
    assert resumed.weights_sha256 == one_by_one.weights_sha256
    assert resumed.memory_sha256 == one_by_one.memory_sha256
    assert [record["present"] for record in resumed.records] == [4, 8, 0, 8]
    assert [record["present_newcomers"] for record in resumed.records] == [0, 4, 0, 4]


@EVERY
def test_a_round_without_clients_changes_nothing(name):
    federation = setup(name, arrivals=ARRIVALS).federation
    progress, first = advance(federation, start(federation))
    assert set(first.cohort) <= set(range(4))
    progress, _ = advance(federation, progress)
    same_progress, empty = advance(federation, progress)
    assert same_progress.round == 3
    assert same_progress.state is progress.state
    assert same_progress.accepted == progress.accepted
    assert (empty.cohort, empty.bytes_up, empty.bytes_down, empty.rejected) == ((), 0, 0, ())


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "local", "clusamp"])
def test_the_wire_changes_no_bit(name):
    assert same(
        after(over_the_wire(spec(name, arrivals=ARRIVALS)), 4), after(setup(name, arrivals=ARRIVALS), 4)
    )


@pytest.mark.parametrize("selector", SELECTORS)
def test_every_selector_copes_with_a_changing_population(selector):
    method = {"name": "fedavg", "weights": "uniform"}
    federation = setup(method, arrivals=ARRIVALS, selector=selector).federation
    there = [set(range(4)), set(range(8)), set(), set(range(8))]
    progress = start(federation)
    for present in there:
        progress, record = advance(federation, progress)
        assert set(record.cohort) <= present
        assert bool(record.cohort) == bool(present)


def test_a_selector_may_select_nobody():
    class Nobody(type(setup().federation.selector)):
        def select(self, state, available, reports, moment):
            return super().select(state, available, reports, moment).take([])

    federation = replace(setup().federation, selector=Nobody())
    _, record = advance(federation, start(federation))
    assert record.cohort == ()
