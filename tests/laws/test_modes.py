"""Laws of the ways to reach clients: each has the bits of one client after another, for every method."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace

import pytest
from toy import BATCH_NORM, DENSE, NORMED, after, hardest_task, same, setup, spec
from wire import over_the_wire

from shoal import StageError
from shoal.core.engine import Engine
from shoal.core.method import Method
from shoal.core.types import Moment
from shoal.loop import advance, start
from shoal.methods import METHODS
from shoal.runs.build import as_method
from shoal.runs.runner import one_thread

TASKS = {"none": DENSE, "batch": BATCH_NORM}
IMAGES = {"dataset": "toy:stripes", "model": "toy:small_cnn", "dropout": True}
DROPOUT = {"dataset": "toy:blobs", "model": "toy:dropping"}
LOCAL = {"lr": 0.05, "batch": 8, "epochs": 2, "momentum": 0.5}


def in_mode(mode, name, rounds=2, workers=2, **changes):
    return after(setup(name, local=LOCAL, engine={"mode": mode, "workers": workers}, **changes), rounds)


@pytest.mark.parametrize(("name", "norm"), NORMED)
def test_blocks_workers_and_the_wire_change_no_bit(name, norm):
    task = TASKS[norm]
    one_by_one = in_mode("serial", name, task=task)
    assert same(in_mode("block", name, task=task), one_by_one)
    if task == hardest_task(name):
        assert same(after(over_the_wire(spec(name, local=LOCAL, task=task)), 2), one_by_one)
        assert same(in_mode("workers", name, task=task), one_by_one)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.filterwarnings("ignore:with a lossy codec")
def test_a_lossy_codec_loses_the_same_bits_on_the_wire(name):
    up = {
        "chain": [{"name": "top_k", "share": 0.3}, {"name": "uniform", "bits": 4, "rounding": "stochastic"}]
    }
    codec = {"up": up, "down": "float16"}
    assert same(after(over_the_wire(spec(name, codec=codec)), 2), after(setup(name, codec=codec), 2))


# those that do with a model what FedAvg does not: corrections, passes of their own, candidates
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedntd", "fedgen", "qfedavg", "fltrust", "fsi"])
def test_dropout_is_the_same_in_every_mode(name):
    one_by_one = in_mode("serial", name, task=DROPOUT)
    for mode in ("block", "workers"):
        assert same(in_mode(mode, name, task=DROPOUT), one_by_one)


@pytest.mark.parametrize("name", METHODS)
def test_convolutions_are_the_same_in_every_mode(name):
    one_by_one = in_mode("serial", name, task=IMAGES)
    for mode in ("block", "workers"):
        assert same(in_mode(mode, name, task=IMAGES), one_by_one)


# without memory, with it, and with many exchanges a round
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fsi"])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_changes_no_bit(name, workers):
    assert same(in_mode("workers", name, workers=workers), in_mode("serial", name))


SHORTCUTS = [
    name for name, entry in METHODS.items() if type(as_method(entry())).shortcut is not Method.shortcut
]


class LegByLeg:
    """An engine that takes no shortcut."""

    def __init__(self, engine):
        self._engine = engine

    def walk(self, walk):
        Engine.walk(self, walk)

    def __getattr__(self, name):
        return getattr(self._engine, name)


@pytest.mark.parametrize("name", SHORTCUTS)
@pytest.mark.parametrize(
    "task",
    [
        {"dataset": "toy:line", "model": "linear"},
        {"dataset": "toy:blobs", "model": "logistic_ova"},
        {"dataset": "toy:blobs", "model": "toy:net"},
    ],
    ids=["regression", "logistic", "net"],
)
@pytest.mark.parametrize("selector", ["all", {"name": "uniform", "count": 3}], ids=["all", "some"])
def test_a_shortcut_has_the_bits_of_its_legs(name, task, selector):
    def rounds(workers, wrap):
        partition = {"kind": "iid", "clients": 5}
        engine = {"mode": "serial", "workers": workers}
        made = setup(name, legs=6, task=task, selector=selector, partition=partition, engine=engine)
        federation = replace(made.federation, engine=wrap(made.federation.engine))
        with one_thread():
            progress = start(federation)
            for _ in range(2):
                progress, record = advance(federation, progress)
                yield progress.state, record

    legs = list(rounds(1, LegByLeg))
    for workers in (1, 2):
        for (state, record), (expected, told) in zip(rounds(workers, lambda e: e), legs, strict=True):
            assert same(state, expected)
            assert record == told


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedbn", "fsi"])
def test_a_killed_worker_changes_no_bit(name):
    made = setup(name, local=LOCAL, engine={"mode": "workers", "workers": 2})
    engine = made.federation.engine
    killed = []

    class Killing:
        def exchange(self, work, cohort, message, key):
            for delivery in engine.exchange(work, cohort, message, key):
                if work.round == 1 and not killed:
                    killed.append(engine._auto.runner.workers[0].process.pid)
                    os.kill(killed[0], signal.SIGKILL)
                yield delivery

        def __getattr__(self, name):
            return getattr(engine, name)

    found = after(made._replace(federation=replace(made.federation, engine=Killing())), 3)
    assert killed
    assert same(found, in_mode("serial", name, 3))


def hanging(made, monkeypatch, times):
    """A client that never ends, the first so many times that it is run."""
    held, left = type(made.side.data), multiprocessing.get_context("fork").Value("i", times)
    train = held.train

    def hang(self, client, *args, **kwargs):
        with left.get_lock():
            left.value -= 1
            stuck = left.value >= 0
        if stuck:
            time.sleep(600)
        return train(self, client, *args, **kwargs)

    monkeypatch.setattr(held, "train", hang)


def test_a_hanging_worker_is_replaced_and_changes_no_bit(monkeypatch):
    one_by_one = in_mode("serial", "fedavg", 1)
    made = setup(local=LOCAL, engine={"mode": "workers", "workers": 2, "timeout": 3})
    hanging(made, monkeypatch, 1)
    assert same(after(made, 1), one_by_one)


def test_a_client_that_hangs_in_two_workers_is_named(monkeypatch):
    made = setup(engine={"mode": "workers", "workers": 1, "timeout": 0.5})
    hanging(made, monkeypatch, 99)
    told = r"update of client \d failed in round 1: two worker processes did not answer within engine.timeout"
    with pytest.raises(StageError, match=told):
        advance(made.federation, start(made.federation))
    assert made.federation.engine._auto.runner.workers == []


def test_a_client_that_kills_two_workers_is_named(monkeypatch):
    made = setup(engine={"mode": "workers", "workers": 2})
    held = type(made.side.data)
    progress = start(made.federation)
    train = held.train

    def deadly(self, client, *args, **kwargs):
        if client == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        return train(self, client, *args, **kwargs)

    key = made.federation.key.fold("round", 0, "select")
    victim = setup().federation.selector.select((), range(8), {}, Moment(0, 0, False, key)).ids[2]
    monkeypatch.setattr(held, "train", deadly)
    with pytest.raises(
        StageError, match=f"update of client {victim} failed in round 1: two worker processes died"
    ):
        advance(made.federation, progress)
    assert made.federation.engine._auto.runner.workers == []


def test_an_error_in_a_worker_says_where_and_leaves_no_process_behind(monkeypatch):
    made = setup(engine={"mode": "workers", "workers": 2})

    def broken(*args, **kwargs):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(type(made.federation.method), "client_update", broken)
    with pytest.raises(
        StageError, match=r"update of client \d failed in round 1: ZeroDivisionError: by zero"
    ):
        advance(made.federation, start(made.federation))
    assert made.federation.engine._auto.runner.workers == []
