"""Laws that every attack of the catalogue keeps, and every method under attack."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from toy import BATCH_NORM, DENSE, KEY, after, hardest_task, play, played, same, setup, spec
from wire import over_the_wire

from shoal.attacks import ATTACKS
from shoal.core.data import Batch
from shoal.core.engine import Work
from shoal.core.types import Cohort, Context, Moment
from shoal.loop import advance, start
from shoal.methods import METHODS
from shoal.runs.build import build

MOMENT = Moment(0, 0, True, KEY)
CHOSEN = (1, 3, 4, 6)  # who attacks; biggest and smallest clients are honest
COHORT = Cohort((7, 6, 5, 4, 3, 2, 1, 0), {}, 8)
MODES = ("serial", "block", "workers")


def attack(name, **fields):
    return {"name": name, **({} if "fraction" in fields else {"attackers": list(CHOSEN)}), **fields}


def replies(made, round=0):
    """What each client answers in a round that starts from the initial state."""
    federation = made.federation
    message = federation.method.dispatch(federation.task, start(federation).state, COHORT, MOMENT)
    deliveries = federation.engine.exchange(Work("update", round, 0, {}), COHORT, message, federation.key)
    found = [single for delivery in deliveries for single in delivery.singles()]
    federation.engine.close()
    assert tuple(single.clients[0] for single in found) == COHORT.ids
    return {single.clients[0]: federation.method.received(single.reply, single.sent) for single in found}


def expected_replies(made):
    """The same by hand, for FedAvg: attackers train on poisoned data, and then tell their lies."""
    federation, side, chosen = made.federation, made.side, made.side.attack
    message = federation.method.dispatch(federation.task, start(federation).state, COHORT, MOMENT)
    honest, contexts = {}, {}
    for client in COHORT.ids:
        contexts[client] = Context(0, 0, {}, federation.key.fold("client", client))
        key = contexts[client].key.fold("batches")
        data = side.data.train(client, federation.method.batching, key, full=False)
        if client in CHOSEN:
            x, y = chosen.poison(Batch(*data.all), data.classes, side.key.fold("poison", client))
            data = replace(data, x=x, y=y, rows=np.arange(data.count))
        _, honest[client] = federation.method.client_update(
            federation.task, (), message, data, contexts[client]
        )
    liars = [client for client in COHORT.ids if client in CHOSEN]
    own, told = [honest[client] for client in liars], [contexts[client] for client in liars]
    if chosen.knows == "own":
        lies = [chosen.lie([o], [c], [o], 1)[0] for o, c in zip(own, told, strict=True)]
    else:
        others = [honest[client] for client in COHORT.ids if client not in CHOSEN]
        lies = chosen.lie(own, told, own + others * (chosen.knows == "all"), len(COHORT.ids))
    return {**honest, **dict(zip(liars, lies, strict=True))}


KNOWING = [("ipm", "own"), ("ipm", "all"), ("alie", "all"), ("min_max", "all")]  # alone, two say nothing new


@pytest.mark.parametrize(("name", "knows"), [*((name, None) for name in ATTACKS), *KNOWING])
def test_attackers_tell_their_lies_and_the_others_answer_as_ever(name, knows):
    fields = {"first": 1} if name == "defect" else {}
    chosen = {"attack": attack(name, **fields, **({} if knows is None else {"knows": knows}))}
    expected = expected_replies(setup(**chosen))
    for mode in MODES:
        assert same(replies(setup(**chosen, engine={"mode": mode, "workers": 2})), expected), mode
    assert same(replies(over_the_wire(spec(**chosen))), expected)
    honest = replies(setup())
    assert {client for client in honest if not same(honest[client], expected[client])} == set(CHOSEN)


@pytest.mark.parametrize("method", METHODS)
def test_the_lie_shows_with_every_method(method):
    there, here = replies(setup(method, attack=attack("min_max"))), replies(setup(method))
    changed = {client for client in here if not same(here[client].payload, there[client].payload)}
    assert changed == (set(CHOSEN) if method != "local" else set())  # whose clients send nothing


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_the_same_bits_under_attack_in_a_block(method):
    changes = {"attack": attack("min_max"), "selector": "all", "task": hardest_task(method)}
    serial, block = (setup(method, **changes, engine={"mode": mode}) for mode in ("serial", "block"))
    found = after(block, 1)
    assert same(found, after(serial, 1))
    for model in block.federation.method.models(found.state).values():
        variances = [value for name, value in model.buffers.items() if name.endswith("running_var")]
        assert all(bool((value >= 0).all()) for value in variances)


@pytest.mark.parametrize("name", ["sign_flip", "min_max"])  # alone, and together
@pytest.mark.parametrize(
    ("method", "task"),
    [
        ("scaffold", BATCH_NORM),
        ("protocol_probes:ModelChain", DENSE),
        ("protocol_probes:ClusterByLabel", DENSE),
    ],
)
@pytest.mark.filterwarnings("ignore:with a lossy codec")
def test_other_axes_keep_their_rules(name, method, task):
    """Clients with settings of their own, messages of their own, several legs, and a codec that remembers."""
    changes = {
        "attack": attack(name),
        "selector": "protocol_probes:BitsBySize",
        "codec": "protocol_probes:Quantizer",
        "task": task,
    }
    reference = after(over_the_wire(spec(method, **changes)), 2)
    for mode in MODES:
        assert same(after(setup(method, **changes, engine={"mode": mode, "workers": 2}), 2), reference)


# on data, on one reply, on those of all attackers
@pytest.mark.parametrize("name", ["label_flip", "sign_flip", "ipm"])
def test_attacks_begin_and_end(name):
    for round, on in ((1, False), (2, True), (3, True), (4, False)):  # counted from 0
        attacked = replies(setup(attack=attack(name, first=3, last=4)), round)
        assert same(attacked, replies(setup(), round)) != on


@pytest.mark.parametrize("name", ["label_flip", "sign_flip", "ipm"])
def test_nobody_attacks_with_fraction_zero(name):
    assert same(played("scaffold", attack=attack(name, fraction=0.0)).state, played("scaffold").state)


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
def test_the_neutral_value_is_honest(name):
    """With one attacker: several who collude all say the same."""
    changes = {"engine": {"mode": "block"}, "selector": "all"}
    told = played("scaffold", 2, attack=attack(name, attackers=[3], **HONEST[name]), **changes)
    assert same(told.state, played("scaffold", 2, **changes).state)


def test_only_the_attackers_replies_wait():
    """Honest replies are passed on one by one, as without an attack."""
    federation = build(spec(attack=attack("min_max"), engine={"mode": "serial"})).federation
    trained = []
    update = type(federation.method).client_update

    def counted(self, *args):
        trained.append(args[-1].key)
        return update(self, *args)

    message = federation.method.dispatch(federation.task, start(federation).state, COHORT, MOMENT)
    with pytest.MonkeyPatch.context() as context:
        context.setattr(type(federation.method), "client_update", counted)
        work = Work("update", 0, 0, {})
        seen = []
        for delivery in federation.engine.exchange(work, COHORT, message, federation.key):
            seen.append((delivery.clients[0], len(trained)))
    # four attackers first, then each honest client only when its turn comes
    assert seen == [(7, 5), (6, 5), (5, 6), (4, 6), (3, 6), (2, 7), (1, 7), (0, 8)]


@pytest.mark.parametrize("mode", ["serial", "block"])
def test_a_refused_lie_leaves_no_trace_with_the_liar(mode):
    """The accepted memory is there again after a lie that no server takes."""
    liar = attack("scale", factor=float("inf"), first=2)
    made = setup("scaffold", attack=liar, selector="all", engine={"mode": mode})
    first = play(made, 1)
    before = made.federation.engine.memory(CHOSEN[0], first.accepted[CHOSEN[0]])
    third = play(made, 2, first)
    assert third.accepted[CHOSEN[0]] == (0, 0)
    assert same(made.federation.engine.memory(CHOSEN[0], (0, 0)), before)
    assert third.accepted[0] == (2, 0)


@pytest.mark.parametrize("method", METHODS)
def test_a_model_that_is_destroyed_ends_no_run(method):
    """The lies are small enough to be taken in; honest clients go on with what is left of the model."""
    federation = setup(method, attack=attack("same_value", value=1e15), selector="all").federation
    progress, record = advance(federation, start(federation))
    assert not record.rejected
    for _ in range(2):
        progress, _ = advance(federation, progress)


def test_attackers_who_know_all_see_updates_as_the_server_does():
    """DSVD-FL sends factors. Inner product manipulation answers with the mean of the updates that it sees."""
    honest = replies(setup("dsvd"))
    lies = replies(setup("dsvd", attack=attack("ipm", knows="all", epsilon=-1.0)))
    mean = torch.stack([reply.payload.update.params["3.bias"] for reply in honest.values()]).double().mean(0)
    for client in CHOSEN:
        found = lies[client].payload.update.params["3.bias"].double()
        torch.testing.assert_close(found, mean, rtol=1e-5, atol=1e-7)
