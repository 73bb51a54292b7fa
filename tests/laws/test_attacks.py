"""Laws that every attack of the catalogue keeps, with every method."""

from functools import cache

import pytest
import torch
from toy import KEY, NORMED, play, played, same, setup, spec
from wire import over_the_wire

from shoal.attacks import ATTACKS
from shoal.core.engine import Work
from shoal.core.tree import tensors, to_bytes
from shoal.core.types import Cohort, Moment
from shoal.loop import start
from shoal.methods import METHODS
from shoal.runs.build import build

MOMENT = Moment(0, 0, True, KEY)
EVERY = pytest.mark.parametrize("name", ATTACKS)
CHOSEN = (1, 3, 4, 6)  # who attacks; biggest and smallest clients are honest
DENSE, BATCH_NORM = ({"dataset": "toy:blobs", "model": "toy:net", "norm": norm} for norm in ("none", "batch"))


def tasks(method):
    """Those that the method can learn; the last has as much to lie about as there can be."""
    return [DENSE, BATCH_NORM] if (method, "batch") in NORMED else [DENSE]


# all attacks with a method that remembers nothing and one that does; the most that an attack can do with all
PAIRS = [
    *((attack, method) for attack in ATTACKS for method in ("fedavg", "scaffold")),
    *(("min_max", method) for method in METHODS if method not in ("fedavg", "scaffold")),
]
PAIRED = pytest.mark.parametrize(("name", "method"), PAIRS)


def attack(name, **fields):
    return {"name": name, **({} if "fraction" in fields else {"attackers": list(CHOSEN)}), **fields}


def ended(made, rounds=3):
    """The state and the memories after some rounds; the engine is closed."""
    try:
        progress = play(made, rounds)
        engine = made.federation.engine
        return progress.state, [engine.memory(c, v) for c, v in sorted(progress.accepted.items())]
    finally:
        made.federation.engine.close()


@PAIRED
@pytest.mark.filterwarnings("ignore:with a lossy codec")
def test_all_ways_have_the_same_bits(name, method):
    usual = method in ("fedavg", "scaffold")
    engines = ({"mode": "block"}, *([{"mode": "workers", "workers": 2}] if usual else []))
    for task, codec in [(DENSE, "float16"), (BATCH_NORM, "raw")] if usual else [(tasks(method)[-1], "raw")]:
        changes = {"attack": attack(name), "selector": "all", "task": task, "codec": codec}
        reference = ended(setup(method, **changes, engine={"mode": "serial"}), 2)
        for engine in engines:
            assert same(ended(setup(method, **changes, engine=engine), 2), reference)
        assert same(ended(over_the_wire(spec(method, **changes)), 2), reference)


@PAIRED
def test_what_it_harms_stays_made_of_numbers(name, method):
    made = setup(method, attack=attack(name), task=tasks(method)[-1], selector="all")
    state, memories = ended(made, 2)
    assert all(bool(leaf.isfinite().all()) for leaf in tensors(state))
    model = made.federation.method.model(state)
    if model is not None:
        assert all(bool((b >= 0).all()) for name, b in model.buffers.items() if name.endswith("running_var"))
    if tensors(state) and method != "krum":  # Krum may take the one update that it takes without an attack
        assert not same((state, memories), clean(method))


@cache
def clean(method):
    return ended(setup(method, task=tasks(method)[-1], selector="all"), 2)


def answers(made, round):
    """What each client answers in a round that starts from the initial state."""
    federation, cohort = made.federation, Cohort((7, 6, 5, 4, 3, 2, 1, 0), {}, 8)
    state = start(federation).state
    message = federation.method.dispatch(federation.task, state, cohort, MOMENT)
    deliveries = federation.engine.exchange(Work("update", round, 0, {}), cohort, message, federation.key)
    found = [
        (single.clients[0], to_bytes(single.reply))
        for delivery in deliveries
        for single in delivery.singles()
    ]
    assert tuple(client for client, _ in found) == cohort.ids
    federation.engine.close()
    return dict(found)


@EVERY
@pytest.mark.parametrize("mode", ["serial", "block", "workers"])
def test_the_honest_answer_as_ever(name, mode):
    engine = {"mode": mode}
    there, here = answers(setup(attack=attack(name), engine=engine), 1), answers(setup(engine=engine), 1)
    assert {client for client in here if here[client] != there[client]} == set(CHOSEN)


@EVERY
def test_attacks_begin_and_end(name):
    made, honest = setup(attack=attack(name, first=3, last=4)), setup()
    for round, on in ((1, False), (2, True), (3, True), (4, False)):  # counted from 0
        assert (answers(made, round) == answers(honest, round)) != on


@EVERY
@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_nobody_attacks_with_fraction_zero(name, method):
    nobody = played(method, attack=attack(name, fraction=0.0))
    assert same(nobody.state, played(method).state)


HONEST = {
    "label_flip": {"labels": 0.0},
    "backdoor": {"share": 0.0},
    "sign_flip": {"factor": -1.0},
    "scale": {"factor": 1.0},
    "gaussian": {"sigma": 0.0},
    "alie": {},
    "ipm": {"epsilon": -1.0},
    "min_max": {},
}


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("mode", ["serial", "block"])
def test_the_neutral_value_is_honest(name, mode):
    """With one attacker: several who collude all say the same."""
    changes = {"engine": {"mode": mode}, "selector": "all"}
    told = played("scaffold", attack=attack(name, attackers=[3], **HONEST[name]), **changes)
    assert same(told.state, played("scaffold", **changes).state)


def test_what_attackers_hold_is_all_that_is_held():
    """Honest replies are passed on one by one, as without an attack."""
    made = build(spec(attack=attack("min_max"), engine={"mode": "serial"}))
    federation, cohort = made.federation, Cohort((7, 6, 5, 4, 3, 2, 1, 0), {}, 8)
    trained = []
    update = type(federation.method).client_update

    def counted(self, *args):
        trained.append(args[-1].key)
        return update(self, *args)

    message = federation.method.dispatch(federation.task, start(federation).state, cohort, MOMENT)
    patched = pytest.MonkeyPatch()
    with patched.context() as context:
        context.setattr(type(federation.method), "client_update", counted)
        work = Work("update", 0, 0, {})
        seen = []
        for delivery in federation.engine.exchange(work, cohort, message, federation.key):
            seen.append((delivery.clients[0], len(trained)))
    # four attackers first, then each honest client only when its turn comes
    assert seen == [(7, 5), (6, 5), (5, 6), (4, 6), (3, 6), (2, 7), (1, 7), (0, 8)]


@pytest.mark.parametrize("name", ["sign_flip", "min_max"])
@pytest.mark.parametrize(
    "method", ["fedavg", "scaffold", "protocol_probes:Chained", "protocol_probes:ByLabel"]
)
@pytest.mark.filterwarnings("ignore:with a lossy codec")
def test_other_axes_keep_their_rules(name, method):
    """Clients with settings of their own, messages of their own, several legs, and a codec that remembers."""
    changes = {"attack": attack(name), "selector": "protocol_probes:Bits", "codec": "protocol_probes:Grid"}
    reference = ended(setup(method, **changes, engine={"mode": "serial"}))
    assert same(ended(setup(method, **changes, engine={"mode": "workers", "workers": 2})), reference)
    assert same(ended(over_the_wire(spec(method, **changes))), reference)
    assert same(ended(setup(method, **changes, engine={"mode": "block"})), reference)


def test_a_refused_lie_leaves_no_trace_with_the_liar():
    """The accepted memory is there again after a lie that no server takes."""
    liar = attack("scale", factor=float("inf"), first=2)
    for mode in ("serial", "block"):
        made = setup("scaffold", attack=liar, selector="all", engine={"mode": mode})
        first = play(made, 1)
        before = made.federation.engine.memory(CHOSEN[0], first.accepted[CHOSEN[0]])
        third = play(made, 2, first)
        assert third.accepted[CHOSEN[0]] == (0, 0)
        assert same(made.federation.engine.memory(CHOSEN[0], (0, 0)), before)
        assert third.accepted[0] == (2, 0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [1e15, 1e38])
def test_a_model_that_is_destroyed_ends_no_run(method, value):
    """Honest clients go on with what is left, until nothing is finite; what they send then is refused."""
    made = setup(method, attack=attack("same_value", value=value), selector="all")
    progress = play(made, 4)
    assert progress.round == 4


@pytest.mark.parametrize("knows", ["own", "colluders", "all"])
@pytest.mark.parametrize("name", ["ipm", "alie", "min_max", "sign_flip"])
def test_whatever_attackers_know_all_ways_have_the_same_bits(name, knows):
    changes = {"attack": attack(name, knows=knows), "selector": "all"}
    reference = ended(setup("scaffold", **changes, engine={"mode": "serial"}))
    for engine in ({"mode": "workers", "workers": 2}, {"mode": "block"}):
        assert same(ended(setup("scaffold", **changes, engine=engine)), reference)
    assert same(ended(over_the_wire(spec("scaffold", **changes))), reference)


def test_attackers_see_what_they_may_know():
    """Inner product manipulation answers with the mean of the replies that it sees."""
    honest = replies(setup("dsvd", selector="all"))
    for knows, seen in (("own", None), ("colluders", CHOSEN), ("all", range(8))):
        lies = replies(setup("dsvd", selector="all", attack=attack("ipm", knows=knows, epsilon=-1.0)))
        for client in CHOSEN:
            whose = [client] if seen is None else seen
            wanted = torch.stack([honest[c]["3.bias"] for c in whose]).double().mean(0)
            torch.testing.assert_close(lies[client]["3.bias"].double(), wanted, rtol=1e-5, atol=1e-7)


def replies(made):
    """The parameters of each client's update in a first round, as the server reads them."""
    federation, cohort = made.federation, Cohort((7, 6, 5, 4, 3, 2, 1, 0), {}, 8)
    message = federation.method.dispatch(federation.task, start(federation).state, cohort, MOMENT)
    deliveries = federation.engine.exchange(Work("update", 0, 0, {}), cohort, message, federation.key)
    return {
        single.clients[0]: federation.method.received(single.reply, single.sent).payload.update.params
        for delivery in deliveries
        for single in delivery.singles()
    }
