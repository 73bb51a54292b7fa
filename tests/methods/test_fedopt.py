import math

import pytest
from toy import averaged_step, on_quadratics, played, same, start_on_quadratics

from shoal import SpecError
from shoal.methods.fedopt import FedAdagrad, FedAdam, FedYogi
from shoal.server import ServerAdagrad, ServerAdam, ServerYogi

RECIPES = {"fedadam": FedAdam, "fedyogi": FedYogi, "fedadagrad": FedAdagrad}
EVERY = pytest.mark.parametrize("name", RECIPES)
LR, STEPS, TAU = 0.1, 5, 0.2


@pytest.mark.parametrize(
    ("method", "second"),
    [
        ({"name": "fedadam"}, lambda d: 0.99 * TAU**2 + 0.01 * d**2),
        ({"name": "fedyogi"}, lambda d: TAU**2 + 0.01 * d**2),  # the step is larger than tau
        ({"name": "fedadagrad", "beta1": 0.9}, lambda d: TAU**2 + d**2),
    ],
)
def test_the_first_step_by_hand(method, second):
    w = start_on_quadratics()
    d = averaged_step(w, LR, STEPS)
    assert abs(d) > TAU
    expected = w + 0.5 * 0.1 * d / (math.sqrt(second(d)) + TAU)
    reached = on_quadratics({**method, "server_lr": 0.5, "tau": TAU}, 1, LR, STEPS)
    assert reached == pytest.approx(expected, abs=1e-6)


@EVERY
def test_several_rounds_on_two_quadratics(name):
    w, m, v = start_on_quadratics(), 0.0, TAU**2
    for _ in range(6):
        d = averaged_step(w, LR, STEPS)
        m = 0.5 * m + 0.5 * d
        v = {
            "fedadam": 0.8 * v + 0.2 * d**2,
            "fedyogi": v + 0.2 * d**2 if v < d**2 else v - 0.2 * d**2,
            "fedadagrad": v + d**2,
        }[name]
        w += 0.3 * m / (math.sqrt(v) + TAU)
    method = {"name": name, "server_lr": 0.3, "beta1": 0.5, "tau": TAU}
    if name != "fedadagrad":
        method["beta2"] = 0.8
    assert on_quadratics(method, 6, LR, STEPS) == pytest.approx(w, abs=1e-5)


def test_a_large_tau_is_a_small_learning_rate():
    """Where tau is far above all steps, v no longer matters: FedAvg with lr / (2 tau)."""
    method = {"name": "fedadagrad", "server_lr": 1e6, "tau": 1e6}
    halved = {"name": "fedavgm", "server_lr": 0.5, "momentum": 0.0}
    assert on_quadratics(method, 4, LR, STEPS) == pytest.approx(on_quadratics(halved, 4, LR, STEPS), abs=1e-5)


@EVERY
def test_buffers_are_fedavgs_means(name):
    task = {"dataset": "toy:blobs", "model": "toy:net", "norm": "batch"}
    first, second = (played(method, 1, task=task).state.model for method in (name, "fedavg"))
    assert same(first.buffers, second.buffers)
    assert not same(first.params, second.params)


@EVERY
def test_weights_matter(name):
    first, second = (played({"name": name, "weights": w}).state.model for w in ("samples", "uniform"))
    assert not same(first, second)


@pytest.mark.parametrize(
    ("recipe", "server"),
    [
        (FedAdam(0.2, 0.5, 0.6, 0.1), ServerAdam(0.2, 0.5, 0.6, 0.1)),
        (FedYogi(0.2, 0.5, 0.6, 0.1), ServerYogi(0.2, 0.5, 0.6, 0.1)),
        (FedAdagrad(0.2, 0.5, 0.1), ServerAdagrad(0.2, 0.5, 0.1)),
        (FedAdam(), ServerAdam()),
        (FedYogi(), ServerYogi()),
        (FedAdagrad(), ServerAdagrad()),
    ],
)
def test_they_are_fedavg_with_a_slot_filled(recipe, server):
    assert recipe.method().server == server


@EVERY
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"server_lr": -1.0}, "the server's lr must be > 0, got -1; 0.01 to 0.1 is usual"),
        ({"tau": 0.0}, "tau must be > 0, got 0; the paper uses 0.001"),
        ({"beta1": 1.0}, r"beta1 must be in \[0, 1\), got 1; "),
    ],
)
def test_bad_values_are_refused(name, values, message):
    with pytest.raises(SpecError, match=message):
        RECIPES[name](**values)


@pytest.mark.parametrize("recipe", [FedAdam, FedYogi])
def test_a_bad_beta2_is_refused(recipe):
    with pytest.raises(SpecError, match=r"beta2 must be in \[0, 1\), got 2; "):
        recipe(beta2=2.0)
