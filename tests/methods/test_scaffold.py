import numpy as np
import pytest
import torch
from toy import CURVATURES, OPTIMA, on_quadratics, play, setup

from shoal import SpecError
from shoal.methods.scaffold import Scaffold
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import effective_steps

JOINT = np.sum(CURVATURES * OPTIMA) / np.sum(CURVATURES)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_reaches_the_joint_optimum_where_fedavg_does_not(momentum):
    lr, steps = 0.05, 5
    assert on_quadratics("scaffold", 150, lr, steps, momentum) == pytest.approx(JOINT, abs=1e-4)
    assert abs(on_quadratics("fedavg", 150, lr, steps, momentum) - JOINT) > 0.05


def test_two_rounds_by_hand():
    """The recursion of the paper, written out for the two quadratics."""
    lr, steps = 0.1, 3
    made = setup(
        "scaffold",
        task={"dataset": "toy:quadratics", "model": "toy:scalar"},
        partition="natural",
        selector="all",
        local={"lr": lr, "batch": 1, "epochs": steps},
    )
    x = float(made.federation.task.init(made.federation.key.fold("init")).params["weight"])
    c, own = 0.0, np.zeros(2)
    for rounds in (1, 2):
        y = np.array([x, x])
        for _ in range(steps):
            y = y - lr * (CURVATURES * (y - OPTIMA) - own + c)
        new = own - c + (x - y) / (steps * lr)
        c, own, x = c + np.mean(new - own), new, float(np.mean(y))
        progress = play(made, rounds)
        assert float(progress.state.model.params["weight"]) == pytest.approx(x, abs=1e-5)
        assert float(progress.state.control["weight"]) == pytest.approx(c, abs=1e-4)
        for client in (0, 1):
            memory = made.federation.engine.memory(client, progress.accepted[client])
            assert float(memory.method["weight"]) == pytest.approx(own[client], abs=1e-4)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_servers_control_is_the_mean_of_the_clients(momentum):
    """Client state that is sent but never written back would break this in the second round."""
    made = setup("scaffold", local={"lr": 0.1, "batch": 8, "epochs": 2, "momentum": momentum})
    progress = play(made, 6)
    zero = {name: torch.zeros_like(value) for name, value in progress.state.control.items()}
    own = [
        made.federation.engine.memory(client, progress.accepted[client]).method
        if client in progress.accepted
        else zero
        for client in range(8)
    ]
    for name, value in progress.state.control.items():
        mean = torch.stack([control[name] for control in own]).mean(0)
        assert float(value.abs().max()) > 0
        torch.testing.assert_close(value, mean, rtol=1e-4, atol=1e-6)


def test_the_divisor_with_momentum():
    """Under a constant gradient of 1 the client must find exactly that as its control."""
    for momentum in (0.0, 0.5, 0.9):
        moved = speed = 0.0
        for _ in range(7):
            speed = momentum * speed + 1.0
            moved += speed
        assert effective_steps(7, momentum) == pytest.approx(moved)


def at_rate(rate):
    return {"name": "scaffold", "server": {"name": "sgd", "lr": rate}}


def test_the_server_rate_scales_the_step():
    one, half = (on_quadratics(at_rate(rate), rounds=1, lr=0.1, steps=2) for rate in (1.0, 0.5))
    start = on_quadratics(at_rate(1e-12), rounds=1, lr=0.1, steps=2)
    assert half - start == pytest.approx((one - start) / 2, abs=1e-6)


def test_bad_rates_are_refused():
    with pytest.raises(SpecError, match="the server's lr must be > 0, got 0"):
        setup(at_rate(0.0))
    with pytest.raises(SpecError, match="the server's lr must be > 0, got 0"):
        Scaffold(server=ServerSgd(lr=0.0))


def test_a_lossy_codec_is_worth_a_warning():
    with pytest.warns(UserWarning, match="the server's control variate is no longer the mean"):
        setup("scaffold", codec="float16")
