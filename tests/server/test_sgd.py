import math

import numpy as np
import pytest
import torch
from toy import KEY, same

from shoal import SpecError
from shoal.core.serialization import from_bytes, to_bytes
from shoal.server import SERVERS, ServerSgd


def steps(rounds=3):
    """Steps of two parameters."""
    rng = KEY.fold("steps").numpy()
    return [
        {"w": torch.from_numpy(rng.normal(size=(2, 3))), "b": torch.from_numpy(rng.normal(size=3))}
        for _ in range(rounds)
    ]


PARAMS = {"w": torch.ones(2, 3), "b": torch.ones(3)}


def taken(server, given):
    """What is really taken of each step, and the last state."""
    state, result = server.init(PARAMS), []
    for step in given:
        state, step = server.step(state, step)
        result.append(step)
    return result, state


def test_the_default_takes_the_very_same_tensors_and_remembers_nothing():
    given = steps()
    result, state = taken(ServerSgd(), given)
    for before, after in zip(given, result, strict=True):
        assert set(before) == set(after)
        assert all(after[name] is value for name, value in before.items())
    assert state == ()


def test_a_learning_rate_scales():
    given = steps()
    result, state = taken(ServerSgd(lr=0.5), given)
    for before, after in zip(given, result, strict=True):
        assert all(torch.equal(after[name], before[name] / 2) for name in before)
    assert state == ()


def test_momentum_by_hand():
    """v = 1, then 0.5 + 2, then 1.25 - 4; twice as far with lr = 2."""
    server = ServerSgd(lr=2.0, momentum=0.5)
    state = server.init({"w": torch.tensor(7.0)})
    moves = []
    for step in (1.0, 2.0, -4.0):
        state, move = server.step(state, {"w": torch.tensor(step, dtype=torch.float64)})
        moves.append(move["w"].item())
    assert moves == [2.0, 5.0, -5.5]
    assert state["w"].item() == -2.75


@pytest.mark.parametrize("lr", [1.0, 0.3])
def test_momentum_against_a_loop(lr):
    given = steps(6)
    result, _ = taken(ServerSgd(lr=lr, momentum=0.9), given)
    for name, value in PARAMS.items():
        velocity = np.zeros(value.shape)
        for before, after in zip(given, result, strict=True):
            velocity = 0.9 * velocity + before[name].numpy()
            np.testing.assert_allclose(after[name].numpy(), lr * velocity, rtol=1e-15, atol=0)


def test_under_a_constant_step_momentum_leads_to_its_multiple():
    step = {name: torch.ones_like(value, dtype=torch.float64) for name, value in PARAMS.items()}
    result, _ = taken(ServerSgd(momentum=0.9), [step] * 300)
    torch.testing.assert_close(result[-1]["w"], 10 * step["w"])


def test_what_nobody_sent_stays():
    server = ServerSgd(momentum=0.9)
    first, second, third = steps()
    state, _ = server.step(server.init(PARAMS), first)
    later, move = server.step(state, {"w": second["w"]})
    assert set(move) == {"w"}
    assert later["b"] is state["b"]
    _, move = server.step(later, third)
    torch.testing.assert_close(move["b"], 0.9 * first["b"] + third["b"])
    assert server.step(later, {}) == (later, {})


@pytest.mark.parametrize("server", [ServerSgd(), ServerSgd(lr=0.5), ServerSgd(lr=0.5, momentum=0.9)])
def test_inputs_are_unchanged(server):
    first, second, _ = steps()
    state, _ = server.step(server.init(PARAMS), first)
    before = to_bytes((PARAMS, state, second))
    server.step(state, second)
    assert to_bytes((PARAMS, state, second)) == before


def test_the_state_is_a_tree_of_float64():
    _, state = taken(ServerSgd(momentum=0.9), steps())
    assert same(from_bytes(to_bytes(state)), state)
    assert {name: value.dtype for name, value in state.items()} == dict.fromkeys(PARAMS, torch.float64)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lr": 0.0}, "lr must be > 0, got 0; 1 applies the step as it is"),
        ({"lr": -1.0}, "lr must be > 0, got -1"),
        ({"lr": math.inf}, "lr must be > 0, got inf"),
        ({"lr": math.nan}, "lr must be > 0, got nan"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1; 0.9 is usual"),
        ({"momentum": -0.1}, r"momentum must be in \[0, 1\), got -0.1"),
    ],
)
def test_bad_values_are_refused(values, message):
    with pytest.raises(SpecError, match=f"the server's {message}"):
        ServerSgd(**values)


def test_the_catalogue_holds_it():
    assert SERVERS["sgd"] is ServerSgd
