"""One course for all clients of a block."""

import pytest
from protocol_probes import ScaffoldByClient
from toy import after, same, setup

from shoal.core.errors import StageError
from shoal.core.training import serves_blocks
from shoal.engines.block import Blocks
from shoal.loop import advance, start
from shoal.methods.fedbn import FedBN
from shoal.methods.qfedavg import QFedAvg
from shoal.methods.scaffold import Scaffold


def counted(monkeypatch, method, **changes):
    """How often a method's code is called in three rounds, and the result."""
    made, calls = setup(method, engine={"mode": "block"}, **changes), []
    kind = type(made.federation.method.client_method)
    original = kind.client_training

    def counting(self, *args):
        calls.append(args)
        return original(self, *args)

    counting.for_blocks = original.for_blocks
    monkeypatch.setattr(kind, "client_training", counting)
    return after(made, 3), calls


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "qfedavg", "fedmut"])
def test_one_call_serves_a_block(monkeypatch, method):
    done, calls = counted(monkeypatch, method)
    assert len(calls) == 3
    monkeypatch.undo()
    assert same(done, after(setup(method, engine={"mode": "serial"}), 3))


@pytest.mark.parametrize("blocks_of", [1, 3])
def test_a_cohort_of_several_blocks_has_the_same_bits(monkeypatch, blocks_of):
    whole = after(setup("scaffold", engine={"mode": "block"}), 3)
    made = setup("scaffold", engine={"mode": "block"})
    monkeypatch.setattr(made.federation.engine._auto.runner, "_size", blocks_of)
    assert same(after(made, 3), whole)


def test_what_a_method_overrides_serves_one_client_unless_it_says_more():
    assert serves_blocks(Scaffold())
    assert serves_blocks(QFedAvg())
    assert not serves_blocks(FedBN().method())

    assert not serves_blocks(ScaffoldByClient())
    one_by_one = after(setup("protocol_probes:ScaffoldByClient", engine={"mode": "block"}), 3)
    assert same(one_by_one, after(setup("scaffold", engine={"mode": "block"}), 3))


def test_memories_are_one_for_each_client():
    made = setup("users:RemembersTheLoss", engine={"mode": "block"})
    assert isinstance(made.federation.engine._auto.runner, Blocks)
    with pytest.raises(StageError, match=r"RemembersTheLoss\.client_training serves blocks: .* not a Tensor"):
        after(made, 1)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("key", "cannot ask for fold of its key"),
        ("setting", "cannot ask for get of its setting"),
        ("data", "cannot ask for count of its data"),
        ("weights", "can ask for losses, and for updates"),
    ],
)
def test_what_each_client_has_of_its_own_cannot_be_asked_for(what, reason):
    """Else a block would get other numbers than one client after another."""
    made = setup({"name": "users:AsksForItsOwn", "what": what}, engine={"mode": "block"})
    with pytest.raises(StageError, match=reason):
        after(made, 1)


def test_bytes_are_those_of_each_rounds_replies():
    sent = {}
    for mode in ("serial", "block"):
        made = setup("users:SaysMoreAndMore", engine={"mode": mode})
        progress, sent[mode] = start(made.federation), []
        for _ in range(3):
            progress, record = advance(made.federation, progress)
            sent[mode].append(record.bytes_up)
    assert sent["block"] == sent["serial"]
    assert len(set(sent["serial"])) == 3
