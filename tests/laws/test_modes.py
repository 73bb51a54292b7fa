"""Laws of the local engine's modes, for every method of the catalogue."""

import os
import signal
from dataclasses import replace

import pytest
from toy import NORMED, play, same, setup

from shoal import StageError
from shoal.core.method import Method
from shoal.core.types import Moment
from shoal.loop import advance, start
from shoal.methods import METHODS
from shoal.runs.build import as_method
from shoal.runs.runner import one_thread

EVERY = pytest.mark.parametrize("name", METHODS)
KINDS = {
    "dense": {"dataset": "toy:blobs", "model": "toy:net", "norm": "none"},
    "batch norm": {"dataset": "toy:blobs", "model": "toy:net", "norm": "batch"},
    "dropout": {"dataset": "toy:blobs", "model": "toy:dropping"},
}
EVERY_TASK = pytest.mark.parametrize(
    ("name", "task"),
    [
        pytest.param(name, task, id=f"{name}-{kind}")
        for name in METHODS
        for kind, task in KINDS.items()
        if (name, task.get("norm", "none")) in NORMED
    ],
)


def closed(made, rounds):
    """The progress and the memories after some rounds; the engine is closed."""
    try:
        progress = play(made, rounds)
        memories = [made.federation.engine.memory(c, v) for c, v in sorted(progress.accepted.items())]
        return progress, memories
    finally:
        made.federation.engine.close()


@EVERY_TASK
def test_all_modes_have_the_same_bits(name, task):
    local = {"lr": 0.05, "batch": 8, "epochs": 2, "momentum": 0.5}
    modes = ({"mode": "serial"}, {"mode": "workers", "workers": 3}, {"mode": "block", "workers": 2})
    reference, *others = (closed(setup(name, task=task, local=local, engine=mode), 2) for mode in modes)
    for found in others:
        assert same(found[0].state, reference[0].state)
        assert same(found[1], reference[1])


SHORTCUTS = [
    name for name, entry in METHODS.items() if type(as_method(entry())).shortcut is not Method.shortcut
]


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
def test_a_shortcut_over_legs_has_the_bits_of_the_legs(name, task, selector):
    class Staged:
        def __init__(self, engine):
            self._engine = engine

        def walk(self, walk):
            for _ in walk.legs:
                walk.step()

        def __getattr__(self, name):
            return getattr(self._engine, name)

    def rounds(workers, wrap):
        partition = {"kind": "iid", "clients": 5}
        engine = {"mode": "serial", "workers": workers}
        made = setup(name, legs=9, task=task, selector=selector, partition=partition, engine=engine)
        federation = replace(made.federation, engine=wrap(made.federation.engine))
        with one_thread():
            progress = start(federation)
            for _ in range(3):
                progress, record = advance(federation, progress)
                yield progress.state, record

    staged = list(rounds(1, Staged))
    for workers in (1, 2):
        for one, two in zip(rounds(workers, lambda engine: engine), staged, strict=True):
            assert same(one[0], two[0])
            assert one[1] == two[1]


@EVERY
def test_a_killed_worker_changes_no_bit(name):
    reference = closed(setup(name, engine={"mode": "serial"}), 3)
    made = setup(name, engine={"mode": "workers", "workers": 2})
    engine = made.federation.engine
    killed = []

    class Killing:
        def exchange(self, work, cohort, message, key):
            for delivery in engine.exchange(work, cohort, message, key):
                if work.round == 1 and not killed:
                    killed.append(engine._way.workers[0].process.pid)
                    os.kill(killed[0], signal.SIGKILL)
                yield delivery

        def __getattr__(self, name):
            return getattr(engine, name)

    made = made._replace(federation=replace(made.federation, engine=Killing()))
    found = closed(made, 3)
    assert killed
    assert same(found[0].state, reference[0].state)
    assert same(found[1], reference[1])


def deadly(*args):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_client_that_kills_two_workers_is_named(monkeypatch):
    made = setup(engine={"mode": "workers", "workers": 2})
    held = type(made.side.data)
    progress = start(made.federation)
    train = held.train

    def trap(self, client, *args, **kwargs):
        return deadly() if client == victim else train(self, client, *args, **kwargs)

    key = made.federation.key.fold("round", 0, "select")
    victim = setup().federation.selector.select((), range(8), {}, Moment(0, 0, False, key)).ids[2]
    monkeypatch.setattr(held, "train", trap)
    with pytest.raises(
        StageError, match=f"update of client {victim} failed in round 1: two worker processes died"
    ):
        advance(made.federation, progress)
    assert made.federation.engine._way.workers == []


def test_an_error_in_a_worker_says_where_and_leaves_nobody_behind(monkeypatch):
    made = setup(engine={"mode": "workers", "workers": 2})

    def broken(*args, **kwargs):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(type(made.federation.method), "client_update", broken)
    with pytest.raises(
        StageError, match=r"update of client \d failed in round 1: ZeroDivisionError: by zero"
    ):
        advance(made.federation, start(made.federation))
    assert made.federation.engine._way.workers == []
