"""The round loop: what it tells to whom, and when."""

from dataclasses import replace

import protocol_probes
import pytest
import torch
from toy import same, setup, table

from shoal.core.engine import Engine
from shoal.core.method import Method
from shoal.loop import advance, start
from shoal.runs.build import build
from shoal.spec import from_table


class Silent:
    """An engine whose clients do not answer in some legs of some rounds."""

    def __init__(self, engine, silent):
        self._engine, self._silent = engine, silent

    def exchange(self, work, cohort, message, key):
        for delivery in self._engine.exchange(work, cohort, message, key):
            quiet = work.verb == "update" and self._silent(work)
            yield delivery._replace(reply=None, reason="lost") if quiet else delivery

    def walk(self, walk):
        Engine.walk(self, walk)

    def __getattr__(self, name):
        return getattr(self._engine, name)


def silenced(made, silent):
    return replace(made.federation, engine=Silent(made.federation.engine, silent))


def moments(made, rounds=2, silent=lambda work: False):
    """What `finish` is told in some rounds."""
    told = []
    finish = type(made.federation.method).finish

    def watched(self, task, state, acc, moment):
        told.append(moment)
        return finish(self, task, state, acc, moment)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(made.federation.method), "finish", watched)
        federation = silenced(made, silent)
        progress = start(federation)
        for _ in range(rounds):
            progress, _ = advance(federation, progress)
    return told


def test_finish_is_told_round_and_leg_and_the_last():
    told = moments(setup({"name": "protocol_probes:ModelChain", "length": 2}))
    assert [(m.round, m.leg, m.last) for m in told] == [
        (0, 0, False),
        (0, 1, True),
        (1, 0, False),
        (1, 1, True),
    ]
    assert len({m.key for m in told}) == 4


def test_finish_is_called_on_the_last_leg_without_replies_too():
    """So the end of a chain is not lost with its last member."""
    made = setup({"name": "protocol_probes:ModelChain", "length": 2})
    told = moments(made, 1, lambda work: work.leg == 1)
    assert [(m.leg, m.last) for m in told] == [(0, False), (1, True)]
    told = moments(setup({"name": "protocol_probes:ModelChain", "length": 2}), 1, lambda work: work.leg == 0)
    assert [(m.leg, m.last) for m in told] == [(1, True)]
    told = moments(setup(), 2, lambda work: work.round == 0)
    assert [m.round for m in told] == [0, 1]


@pytest.mark.parametrize(
    "method", ["fedavg", "scaffold", "fedqp", "dsvd", "fedgen", "fsi", "qfedavg", "krum"]
)
def test_a_round_without_replies_leaves_the_model(method):
    made = setup(method)
    federation = silenced(made, lambda work: work.round == 1)
    first, _ = advance(federation, start(federation))
    second, record = advance(federation, first)
    assert {reason for _, reason in record.rejected} == {"lost"}
    assert same(made.federation.method.models(second.state), made.federation.method.models(first.state))


def test_dispatch_and_finish_of_a_leg_are_told_the_same():
    made, told = setup("fedqp"), []
    for name in ("dispatch", "finish"):
        original = getattr(type(made.federation.method), name)

        def watched(self, task, state, given, moment, _original=original, _name=name):
            told.append((_name, moment))
            return _original(self, task, state, given, moment)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(made.federation.method), name, watched)
            advance(made.federation, start(made.federation))
    assert told[0][1] == told[1][1]


# ---- the shortcut of methods whose legs are alike


def shortcuts(monkeypatch, engine_of=lambda engine: engine, **changes):
    """How often a shortcut is asked for in a round of five legs."""
    tables = table({"name": "protocol_probes:ManyLegs"}, **changes)
    del tables["local"]
    made = build(from_table(tables))
    asked = []
    shortcut = protocol_probes.ManyLegs.shortcut

    def counted(self, *args):
        asked.append(args)
        return shortcut(self, *args)

    monkeypatch.setattr(protocol_probes.ManyLegs, "shortcut", counted)
    federation = replace(made.federation, engine=engine_of(made.federation.engine))
    advance(federation, start(federation))
    return len(asked)


def test_a_shortcut_is_taken(monkeypatch):
    assert shortcuts(monkeypatch) == 1


def test_no_shortcut_after_a_refused_reply(monkeypatch):
    """Whose reply is refused in one leg may be refused in the next: only exchanges can tell."""

    def losing(engine):
        whole = engine.exchange

        def exchange(work, cohort, message, key):
            for delivery in whole(work, cohort, message, key):
                gone = delivery.clients[0] == cohort.ids[0] and work.leg == 1
                yield delivery._replace(reply=None, reason="lost") if gone else delivery

        monkeypatch.setattr(engine, "exchange", exchange)
        return engine

    assert shortcuts(monkeypatch, losing) == 0


def test_no_shortcut_where_somebody_remembers_or_watches(monkeypatch):
    assert shortcuts(monkeypatch, selector={"name": "users:LargestUpdates", "count": 4}) == 0
    monkeypatch.setattr(protocol_probes.ManyLegs, "client_init", lambda *_: torch.zeros(1), raising=False)
    assert shortcuts(monkeypatch) == 0


def test_no_shortcut_where_legs_differ(monkeypatch):
    legs = protocol_probes.ManyLegs.legs

    def unlike(self, state, cohort, moment):
        return (*legs(self, state, cohort, moment)[:-1], cohort.take([0, 1]))

    monkeypatch.setattr(protocol_probes.ManyLegs, "legs", unlike)
    assert shortcuts(monkeypatch) == 0


def test_methods_have_few_flags():
    flags = [name for name, hint in Method.__annotations__.items() if "ClassVar" in str(hint)]
    assert len(flags) <= 4
