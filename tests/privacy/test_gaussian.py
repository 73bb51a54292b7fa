import pytest
import torch
from toy import KEY, play, same, setup, table

import shoal
from shoal import SpecError
from shoal.core.types import ModelUpdate, Reply, Weights
from shoal.privacy.gaussian import GaussianNoise

UPDATE = ModelUpdate(Weights({"w": torch.zeros(4000)}, {"seen": torch.tensor(3)}))
REPLY = Reply(UPDATE, torch.tensor(5.0), {"train_loss": torch.tensor(1.0)})


def test_noise_of_the_given_size_on_floating_numbers_only():
    told = GaussianNoise(noise=2.0).protect(REPLY, KEY)
    assert float(told.payload.update.params["w"].std()) == pytest.approx(2.0, rel=0.05)
    assert abs(float(told.payload.update.params["w"].mean())) < 0.1
    assert told.payload.update.buffers["seen"] == 3
    assert told.payload.update.params["w"].dtype == torch.float32
    assert told.weight == REPLY.weight
    assert not UPDATE.update.params["w"].any()


def test_noise_comes_from_the_key():
    one, again, other = (GaussianNoise(1.0).protect(REPLY, key) for key in (KEY, KEY, KEY.fold(1)))
    assert same(one.payload, again.payload)
    assert not same(one.payload, other.payload)


def test_no_noise_no_change():
    silent = play(setup(privacy={"name": "gaussian", "noise": 0.0}))
    assert same(silent.state, play(setup()).state)
    assert not same(play(setup(privacy={"name": "gaussian", "noise": 0.01})).state, silent.state)


@pytest.mark.parametrize("mode", ["block", "workers"])
def test_every_mode_adds_the_same_noise(mode):
    axes = {"privacy": {"name": "gaussian", "noise": 0.01}}
    here = setup(engine={"mode": "serial"}, **axes)
    there = setup(engine={"mode": mode, "workers": 2}, **axes)
    try:
        assert same(play(here).state, play(there).state)
    finally:
        there.federation.engine.close()


def test_small_clients_stay_out():
    made = setup(selector="all", privacy={"name": "gaussian", "noise": 0.0, "min_samples": 30})
    large = [client for client in range(8) if made.shards.count(client) >= 30]
    assert 0 < len(large) < 8
    assert list(made.federation.engine.clients(0)) == large
    play(made)


def test_bad_values_are_refused():
    for fields, words in {
        ("noise", -1.0): "noise must be a standard deviation of at least 0, got -1",
        ("min_samples", -1): "min_samples must be at least 0, got -1",
        ("min_samples", 1000): "privacy.min_samples = 1000, but no client holds more than",
    }.items():
        name, value = fields
        with pytest.raises(SpecError, match=words):
            shoal.run(table(privacy={"name": "gaussian", "noise": 0.0, name: value}))
