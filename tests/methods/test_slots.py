"""Methods whose slots hold other parts than their own."""

import pytest
from toy import CURVATURES, OPTIMA, on_quadratics, played, same, start_on_quadratics

NORM = pytest.mark.parametrize("norm", ["none", "batch"])
FEDPROX = {"name": "fedprox", "mu": 0.5}
PROXIMAL = [{"name": "proximal", "mu": 0.5}]
KRUM = {"name": "krum", "f": 1}
ADAM = {"name": "adam", "lr": 0.02}
FEDADAM = {"name": "fedadam", "server_lr": 0.02}

# a method, what its slots are filled with, and the plain method of the same filling
FILLED = {
    "fedprox + krum": (FEDPROX, {"aggregator": KRUM}, KRUM),
    "scaffold + median": ({"name": "scaffold"}, {"aggregator": "median"}, "median"),
    "fedbn + median": ({"name": "fedbn"}, {"aggregator": "median"}, "median"),
    "fedqp + proximal": ({"name": "fedqp"}, {"terms": PROXIMAL}, FEDPROX),
    "fedprox + adam": (FEDPROX, {"server": ADAM}, FEDADAM),
}
EVERY = pytest.mark.parametrize("name", FILLED)


def model(method, norm="none", rounds=2, **changes):
    task = {"dataset": "toy:blobs", "model": "toy:net", "norm": norm}
    return played(method, rounds, task=task, selector="all", **changes).state.model


@EVERY
@NORM
def test_what_fills_a_slot_makes_a_difference_and_so_does_the_method(name, norm):
    """And a block has the bits of one client after another."""
    method, slots, plain = FILLED[name]
    found = model({**method, **slots}, norm, engine={"mode": "block"})
    assert same(found, model({**method, **slots}, norm, engine={"mode": "serial"}))
    assert not same(found, model(method, norm))
    if (name, norm) != ("fedbn + median", "none"):  # there is no norm to keep at home: see below
        assert not same(found, model(plain, norm))


@NORM
@pytest.mark.parametrize(
    ("method", "twin", "rounds"),
    [
        ({**FEDPROX, "aggregator": "median"}, {"name": "median", "terms": PROXIMAL}, 2),
        ({**FEDPROX, "aggregator": KRUM}, {**KRUM, "terms": PROXIMAL}, 2),
        ({**FEDPROX, "server": ADAM}, {**FEDADAM, "terms": PROXIMAL}, 2),
        ({"name": "scaffold", "aggregator": "median"}, "median", 1),  # all controls are still 0
        ({"name": "fedqp", "alpha": 0.0, "terms": PROXIMAL}, {**FEDPROX, "weights": "uniform"}, 2),
        ({"name": "fedqp", "alpha": 0.0, "aggregator": "median"}, "median", 2),
    ],
    ids=str,
)
def test_the_same_parts_make_the_same_bits(method, twin, rounds, norm):
    assert same(model(method, norm, rounds), model(twin, norm, rounds))


def test_fedbn_with_no_norm_to_keep_at_home_is_its_aggregator():
    assert same(model({"name": "fedbn", "aggregator": "median"}), model("median"))


def test_a_servers_rate_in_fedprox_by_hand():
    """Each client goes part of the way to (h a + mu w) / (h + mu), the server half of their mean."""
    lr, mu, steps = 0.1, 2.0, 4
    w = start_on_quadratics()
    stiff = CURVATURES + mu
    ends = (CURVATURES * OPTIMA + mu * w) / stiff
    step = ((1 - (1 - lr * stiff) ** steps) * (ends - w)).mean()
    reached = on_quadratics({"name": "fedprox", "mu": mu, "server": {"name": "sgd", "lr": 0.5}}, 1, lr, steps)
    assert reached == pytest.approx(w + step / 2, abs=1e-6)


def test_krum_in_fedprox_by_hand():
    """Both quadratics have one neighbour, at the same distance: the first client's model is taken."""
    lr, mu, steps = 0.1, 2.0, 4
    w = start_on_quadratics()
    stiff = CURVATURES[0] + mu
    end = (CURVATURES[0] * OPTIMA[0] + mu * w) / stiff
    taken = w + (1 - (1 - lr * stiff) ** steps) * (end - w)
    method = {"name": "fedprox", "mu": mu, "aggregator": {"name": "krum", "f": 0}}
    assert on_quadratics(method, 1, lr, steps) == pytest.approx(taken, abs=1e-6)
