import pytest
from toy import averaged_step, on_quadratics, played, same, start_on_quadratics

from shoal import SpecError
from shoal.methods.fedavgm import FedAvgM
from shoal.server import ServerSgd

NEUTRAL = {"name": "fedavgm", "momentum": 0.0, "server_lr": 1.0}
BATCH_NORM = {"dataset": "toy:blobs", "model": "toy:net", "norm": "batch"}
LR, STEPS = 0.1, 5


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_without_momentum_it_is_fedavg(norm, weights):
    task = {"dataset": "toy:blobs", "model": "toy:net", "norm": norm}
    first = played({**NEUTRAL, "weights": weights}, task=task)
    second = played({"name": "fedavg", "weights": weights}, task=task)
    assert same(first.state.model, second.state.model)


@pytest.mark.parametrize("rounds", [1, 2, 8])
@pytest.mark.parametrize(("lr", "momentum"), [(1.0, 0.5), (0.4, 0.9), (0.7, 0.0)])
def test_the_heavy_ball_on_two_quadratics(rounds, lr, momentum):
    w, velocity = start_on_quadratics(), 0.0
    for _ in range(rounds):
        velocity = momentum * velocity + averaged_step(w, LR, STEPS)
        w += lr * velocity
    method = {"name": "fedavgm", "server_lr": lr, "momentum": momentum}
    assert on_quadratics(method, rounds, LR, STEPS) == pytest.approx(w, abs=1e-5)


def test_it_rests_where_fedavg_rests():
    """Momentum changes the way, not the biased fixed point."""
    method = {"name": "fedavgm", "momentum": 0.5}
    assert on_quadratics(method, 80, LR, STEPS) == pytest.approx(
        on_quadratics("fedavg", 80, LR, STEPS), abs=1e-5
    )


def test_the_first_round_is_fedavgs_and_the_second_is_not():
    assert same(played("fedavgm", 1).state.model, played("fedavg", 1).state.model)
    assert not same(played("fedavgm", 2).state.model, played("fedavg", 2).state.model)


def test_buffers_are_fedavgs_means():
    first = played({"name": "fedavgm", "server_lr": 0.5}, 1, task=BATCH_NORM).state.model
    second = played("fedavg", 1, task=BATCH_NORM).state.model
    assert same(first.buffers, second.buffers)
    assert not same(first.params, second.params)


def test_it_is_fedavg_with_a_slot_filled():
    assert FedAvgM(server_lr=0.5, momentum=0.8).method().server == ServerSgd(0.5, 0.8)
    slot = {"name": "fedavg", "server": {"name": "sgd", "momentum": 0.9}}
    assert same(played(slot).state.model, played("fedavgm").state.model)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"momentum": 1.0}, r"the server's momentum must be in \[0, 1\), got 1; 0.9 is usual"),
        ({"server_lr": 0.0}, "the server's lr must be > 0, got 0; 1 applies the step as it is"),
    ],
)
def test_bad_values_are_refused(values, message):
    with pytest.raises(SpecError, match=message):
        FedAvgM(**values)
