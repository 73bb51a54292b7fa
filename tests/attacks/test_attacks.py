"""Who attacks, and what a spec says of it."""

import pytest
from toy import KEY, setup, spec, table

import shoal
from shoal import SpecError
from shoal.attacks import ATTACKS
from shoal.attacks.sign_flip import SignFlip
from shoal.core.codec import Packet
from shoal.core.types import Context, ModelMessage
from shoal.spec import from_table, to_table

EVERY = pytest.mark.parametrize("name", ATTACKS)


@EVERY
def test_the_same_clients_attack_all_through(name):
    attack = ATTACKS[name](fraction=0.3)
    attackers = attack.members(20, KEY)
    assert len(attackers) == 6
    assert attackers == attack.members(20, KEY)
    assert attackers != attack.members(20, KEY.fold(1))


@EVERY
def test_it_is_part_of_the_spec(name):
    for fields in ({}, {"fraction": 0.25}, {"attackers": [2, 5], "first": 2, "last": 3}):
        chosen = spec(attack={"name": name, **fields})
        assert from_table(to_table(chosen)) == chosen
        assert to_table(chosen)["attack"].items() >= fields.items()


def test_a_tenth_attacks_unless_the_spec_says_otherwise():
    assert len(SignFlip().members(50, KEY)) == 5
    assert SignFlip(fraction=0.0).members(50, KEY) == frozenset()
    assert SignFlip(attackers=(3, 1)).members(5, KEY) == {1, 3}


def test_attacks_have_a_first_and_a_last_round():
    attack = SignFlip(first=2, last=3)
    assert [attack.active(round) for round in range(4)] == [False, True, True, False]
    assert SignFlip().active(0)
    assert SignFlip().active(10**6)


STRONG = {  # enough for a task that is as easy as the toy
    "label_flip": {},
    "sign_flip": {},
    "scale": {"factor": -10.0},
    "gaussian": {"sigma": 5.0},
    "same_value": {"value": 5.0},
    "ipm": {"epsilon": 3.0},
    "alie": {"z": 8.0},
}


@pytest.mark.parametrize("name", STRONG)
def test_an_attack_lowers_the_accuracy(name):
    clean = shoal.run(table(rounds=6, selector="all"))
    attack = {"name": name, "fraction": 0.6, **STRONG[name]}
    attacked = shoal.run(table(rounds=6, selector="all", attack=attack))
    assert attacked.final_accuracy < clean.final_accuracy - 0.1


def test_the_record_names_the_attackers():
    attack = {"name": "sign_flip", "attackers": [1, 3, 6], "first": 2}
    result = shoal.run(table(rounds=3, attack=attack, evaluate={"every": 1}))
    assert result.summary["attackers"] == [1, 3, 6]
    assert result.summary["attackers_share"] == 3 / 8
    assert result.records[0]["attackers"] == []
    for record in result.records[1:]:
        assert record["attackers"] == [client for client in record["cohort"] if client in (1, 3, 6)]
    clean = shoal.run(table(rounds=1))
    assert "attackers" not in clean.summary
    assert "attackers" not in clean.records[0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fraction": 2.0}, r"\[attack\] fraction must be in \[0, 1\], got 2"),
        ({"fraction": 0.1, "attackers": [1]}, "give fraction or attackers, not both"),
        ({"attackers": [1, 1]}, "attackers must be different client ids"),
        ({"first": 0}, "first must be at least 1, the first round, got 0"),
        ({"first": 3, "last": 2}, "last must be at least first = 3, got 2"),
        ({"attackers": [8]}, "client 8 cannot attack: ids are 0 to 7"),
        ({"fraction": 0.05}, "fraction = 0.05 of 8 clients is no client; raise it, or name attackers"),
    ],
)
def test_bad_values_are_refused(fields, message):
    with pytest.raises(SpecError, match=message):
        setup(attack={"name": "sign_flip", **fields})


def test_attackers_who_collude_need_one_place():
    made = setup(attack={"name": "ipm", "attackers": [0]})
    packet = Packet(ModelMessage(made.federation.task.init(KEY)))
    with pytest.raises(SpecError, match="attackers must run in one place"):
        made.side.visit("update", 0, made.side.fresh, packet, Context(0, 0, {}, KEY))
