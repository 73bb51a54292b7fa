import math

import numpy as np
import pytest
import torch
from toy import KEY, same

from shoal import SpecError
from shoal.core.serialization import from_bytes, to_bytes
from shoal.core.tree import tensors
from shoal.server import SERVERS, ServerAdagrad, ServerAdam, ServerYogi

ADAPTIVE = {name: SERVERS[name] for name in ("adam", "yogi", "adagrad")}
EVERY = pytest.mark.parametrize("name", ADAPTIVE)
PARAMS = {"w": torch.ones(2, 3), "b": torch.ones(3)}


def steps(rounds=3):
    """Steps of two parameters, some of whose coordinates are 0 and some shrink from round to round."""
    rng = KEY.fold("steps").numpy()
    sizes = [{"w": rng.normal(size=(2, 3)), "b": rng.normal(size=3)} for _ in range(rounds)]
    for n, step in enumerate(sizes):
        step["w"][0] /= 10**n
        step["b"][0] = 0
    return [{name: torch.from_numpy(value) for name, value in step.items()} for step in sizes]


def by_hand(server):
    """Three rounds with the steps 1, -3 and 1: what is taken, and v after each."""
    state, moves, seconds = server.init({"x": torch.tensor(0.0)}), [], []
    for step in (1.0, -3.0, 1.0):
        state, move = server.step(state, {"x": torch.tensor(step, dtype=torch.float64)})
        moves.append(move["x"].item())
        seconds.append(state.second["x"].item())
    return moves, seconds


# with beta1 = 0.5 the means of the steps 1, -3 and 1 are 0.5, -1.25 and -0.125; v begins at tau^2 = 1


def test_adam_by_hand():
    """v = (1 + 1) / 2, (1 + 9) / 2 and (5 + 1) / 2."""
    moves, seconds = by_hand(ServerAdam(lr=8.0, beta1=0.5, beta2=0.5, tau=1.0))
    assert seconds == [1.0, 5.0, 3.0]
    assert moves == pytest.approx([2.0, -10 / (5**0.5 + 1), -1 / (3**0.5 + 1)], rel=1e-15)


def test_yogi_by_hand():
    """v stays 1 where it equals the square, then grows by 9 / 2, then shrinks by 1 / 2."""
    moves, seconds = by_hand(ServerYogi(lr=8.0, beta1=0.5, beta2=0.5, tau=1.0))
    assert seconds == [1.0, 5.5, 5.0]
    assert moves == pytest.approx([2.0, -10 / (5.5**0.5 + 1), -1 / (5**0.5 + 1)], rel=1e-15)


def test_adagrad_by_hand():
    """v = 1 + 1, 2 + 9 and 11 + 1; without beta1 the steps themselves are scaled."""
    moves, seconds = by_hand(ServerAdagrad(lr=8.0, beta1=0.5, tau=1.0))
    assert seconds == [2.0, 11.0, 12.0]
    assert moves == pytest.approx([4 / (2**0.5 + 1), -10 / (11**0.5 + 1), -1 / (12**0.5 + 1)], rel=1e-15)
    moves, _ = by_hand(ServerAdagrad(lr=8.0, tau=1.0))
    assert moves == pytest.approx([8 / (2**0.5 + 1), -24 / (11**0.5 + 1), 8 / (12**0.5 + 1)], rel=1e-15)


def loop(name, given, lr, beta1, beta2, tau):
    """Algorithm 2 for each number by itself."""
    m, v, taken = 0.0, tau * tau, []
    for d in given:
        m = beta1 * m + (1 - beta1) * d
        if name == "adam":
            v = beta2 * v + (1 - beta2) * d * d
        elif name == "adagrad":
            v = v + d * d
        elif v > d * d:
            v = v - (1 - beta2) * d * d
        elif v < d * d:
            v = v + (1 - beta2) * d * d
        taken.append(lr * m / (math.sqrt(v) + tau))
    return taken


@EVERY
@pytest.mark.parametrize("tau", [1e-3, 0.5])
def test_against_a_loop_over_single_numbers(name, tau):
    server, given = ADAPTIVE[name](tau=tau), steps(6)
    state, taken = server.init(PARAMS), []
    for step in given:
        state, step = server.step(state, step)
        taken.append(step)
    beta2 = getattr(server, "beta2", math.nan)
    for param, value in PARAMS.items():
        for place in np.ndindex(*value.shape):
            numbers = [step[param][place].item() for step in given]
            expected = loop(name, numbers, server.lr, server.beta1, beta2, tau)
            assert [step[param][place].item() for step in taken] == pytest.approx(expected, rel=1e-12)


def test_the_defaults_are_the_papers():
    for server in (ServerAdam(), ServerYogi()):
        assert (server.beta1, server.beta2, server.tau) == (0.9, 0.99, 1e-3)
    assert (ServerAdagrad().beta1, ServerAdagrad().tau) == (0.0, 1e-3)


@EVERY
def test_nothing_moves_where_clients_do_not(name):
    server = ADAPTIVE[name]()
    state = server.init(PARAMS)
    zero = {param: torch.zeros_like(value, dtype=torch.float64) for param, value in PARAMS.items()}
    _, taken = server.step(state, zero)
    assert same(taken, zero)


def test_tau_bounds_how_far_small_steps_reach():
    """Where steps are far smaller than tau, they are scaled alike: by lr / (2 tau), as v begins at tau^2."""
    server = ServerAdagrad(lr=0.1, tau=0.1)
    step = {"w": torch.tensor([1e-6, -3e-6], dtype=torch.float64)}
    _, taken = server.step(server.init(step), step)
    torch.testing.assert_close(taken["w"], 0.5 * step["w"], rtol=1e-9, atol=0)


def test_yogi_forgets_a_large_step_more_slowly_than_adam():
    large, small = ({"w": torch.tensor([d], dtype=torch.float64)} for d in (1.0, 1e-3))
    left = {}
    for server in (ServerAdam(), ServerYogi()):
        state, _ = server.step(server.init(large), large)
        for _ in range(100):
            state, _ = server.step(state, small)
        left[type(server)] = state.second["w"].item()
    assert left[ServerAdam] < 0.5 * left[ServerYogi]


@EVERY
def test_what_nobody_sent_stays(name):
    server = ADAPTIVE[name](beta1=0.9)
    first, second, third = steps()
    state, _ = server.step(server.init(PARAMS), first)
    later, taken = server.step(state, {"w": second["w"]})
    assert set(taken) == {"w"}
    assert later.first["b"] is state.first["b"]
    assert later.second["b"] is state.second["b"]
    _, taken = server.step(later, third)
    _, without = server.step(state, {"b": third["b"]})  # as if the second round had not been
    assert torch.equal(taken["b"], without["b"])
    assert same(server.step(later, {}), (later, {}))


@EVERY
def test_inputs_are_unchanged(name):
    server = ADAPTIVE[name]()
    first, second, _ = steps()
    state, _ = server.step(server.init(PARAMS), first)
    before = to_bytes((PARAMS, state, second))
    server.step(state, second)
    assert to_bytes((PARAMS, state, second)) == before


@EVERY
def test_the_state_is_a_tree_of_float64(name):
    server = ADAPTIVE[name]()
    state, _ = server.step(server.init(PARAMS), steps()[0])
    back = from_bytes(to_bytes(state))
    assert type(back) is type(state)
    assert same(back, state)
    assert {leaf.dtype for leaf in tensors(state)} == {torch.float64}
    assert same(server.step(back, steps()[1]), server.step(state, steps()[1]))


@EVERY
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lr": 0.0}, "the server's lr must be > 0, got 0; "),
        ({"lr": math.nan}, "the server's lr must be > 0, got nan; "),
        ({"tau": 0.0}, "tau must be > 0, got 0; the paper uses 0.001"),
        ({"tau": math.inf}, "tau must be > 0, got inf"),
        ({"beta1": 1.0}, r"beta1 must be in \[0, 1\), got 1; "),
        ({"beta1": -0.5}, r"beta1 must be in \[0, 1\), got -0.5; "),
        ({"beta2": 1.0}, r"beta2 must be in \[0, 1\), got 1; "),
        ({"beta2": math.nan}, r"beta2 must be in \[0, 1\), got nan; "),
    ],
)
def test_bad_values_are_refused(name, values, message):
    if name == "adagrad" and "beta2" in values:
        return
    with pytest.raises(SpecError, match=message):
        ADAPTIVE[name](**values)
