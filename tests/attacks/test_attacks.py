import pytest
import torch
from toy import KEY, play, played, same, setup, table

import shoal
from shoal import SpecError
from shoal.attacks import ATTACKS
from shoal.attacks.label_flip import LabelFlip
from shoal.attacks.sign_flip import SignFlip
from shoal.core.types import ModelUpdate, Reply, Weights


@pytest.mark.parametrize("name", ATTACKS)
def test_the_same_clients_attack_all_through(name):
    attack = ATTACKS[name](fraction=0.3)
    attackers = attack.attackers(20, KEY)
    assert len(attackers) == 6
    assert attackers == attack.attackers(20, KEY)
    assert attackers != attack.attackers(20, KEY.fold(1))


@pytest.mark.parametrize("name", ATTACKS)
def test_nobody_attacks_with_fraction_zero(name):
    assert same(played(attack={"name": name, "fraction": 0.0}).state, played().state)
    assert not same(played(attack={"name": name, "fraction": 0.5}).state, played().state)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_part_of_the_spec_and_hurts(name):
    clean = shoal.run(table(rounds=6, selector="all"))
    attacked = shoal.run(table(rounds=6, selector="all", attack={"name": name, "fraction": 0.6}))
    assert attacked.final_accuracy < clean.final_accuracy - 0.1


def test_flipped_labels():
    made = setup()
    data = made.side.holdings.train(0, None, KEY, full=False)
    flipped = LabelFlip().poison(data, KEY)
    assert torch.equal(flipped.all.y, 3 - data.all.y)
    assert torch.equal(flipped.all.x, data.all.x)
    assert torch.equal(flipped.label_counts, data.label_counts.flip(0))


def test_flipped_signs():
    update = Weights({"w": torch.tensor([1.0, -2.0])}, {"seen": torch.tensor(3)})
    lied = SignFlip(scale=2.0).lie(Reply(ModelUpdate(update), torch.tensor(1.0), {}), KEY)
    assert lied.payload.update.params["w"].tolist() == [-2.0, 4.0]
    assert lied.payload.update.buffers["seen"].item() == 3


def test_a_sign_flip_of_scale_minus_one_is_honest():
    attack = {"name": "sign_flip", "fraction": 1.0, "scale": -1.0}
    assert same(played(attack=attack).state, played().state)


def test_everybody_flipping_walks_backwards():
    made = setup(attack={"name": "sign_flip", "fraction": 1.0}, rounds=1)
    before, forth = made.federation.task.init(made.federation.key.fold("init")), played(rounds=1).state.model
    back = play(made, 1).state.model
    for name, value in before.params.items():
        torch.testing.assert_close(
            back.params[name] - value, value - forth.params[name], rtol=1e-4, atol=1e-6
        )


def test_bad_values():
    with pytest.raises(SpecError, match=r"fraction must be in \[0, 1\], got 2"):
        SignFlip(fraction=2.0)
    with pytest.raises(SpecError, match="label_flip needs class labels"):
        shoal.run(
            table(
                task={"dataset": "toy:line", "model": "linear"},
                partition={"kind": "iid", "clients": 8},
                attack={"name": "label_flip", "fraction": 1.0},
            )
        )
