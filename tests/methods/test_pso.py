import itertools

import pytest
import torch
from toy import same, setup

import shoal
from shoal.core.data import Dataset
from shoal.core.errors import SpecError
from shoal.loop import advance, start
from shoal.methods.pso import Pso
from shoal.runs.runner import one_thread

CENTRE = [3.0, -2.0, 1.0, 0.5]


def sphere() -> Dataset:
    """A regression whose summed squared error is |theta - CENTRE|^2 times 4: four orthogonal samples."""
    signs = torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    y = signs @ torch.tensor(CENTRE[:3]) + CENTRE[3]
    return Dataset("sphere", signs, y, signs, y, classes=0)


def on_the_sphere(rounds, **fields):
    task = {"dataset": "test_pso:sphere", "model": "linear"}
    method = {"name": "pso", "initial_range": 5.0, "epochs": 20, **fields}
    made = setup(method, task=task, partition={"kind": "iid", "clients": 2}, selector="all")
    with one_thread():
        progress = start(made.federation)
        for _ in range(rounds):
            progress, record = advance(made.federation, progress)
            yield made.federation.method, progress.state, record


@pytest.fixture(autouse=True)
def _named(monkeypatch):
    """Specs name the sphere as a user's specs name a user's data set."""
    import sys

    monkeypatch.setitem(sys.modules, "test_pso", sys.modules[__name__])


def test_it_finds_the_middle_of_a_sphere():
    *_, (method, state, record) = on_the_sphere(25)
    model = method.model(state)
    found = torch.cat([model.params["fc.weight"][0], model.params["fc.bias"]])
    torch.testing.assert_close(found, torch.tensor(CENTRE, dtype=torch.float64), rtol=1e-6, atol=1e-6)
    assert record.metrics["best_loss"] < 1e-12


def test_personal_bests_never_get_worse():
    losses = [state.losses for _, state, _ in on_the_sphere(40, epochs=1)]
    assert all(bool((after <= before).all()) for before, after in itertools.pairwise(losses))


def test_particles_fly_on_from_where_they_are_not_from_their_best():
    *_, (_, state, _) = on_the_sphere(3)
    assert not torch.equal(state.candidates - state.velocities, state.particles)


def test_without_forces_nothing_moves():
    *_, (_, state, _) = on_the_sphere(2, inertia=0.0, c1=0.0, c2=0.0)
    first = next(on_the_sphere(1, inertia=0.0, c1=0.0, c2=0.0))[1]
    assert same(state.particles, first.particles)
    assert same(state.candidates, first.particles)


def test_the_key_decides_everything():
    one, two = ([state for _, state, _ in on_the_sphere(3)][-1] for _ in range(2))
    assert same(one, two)


def test_ten_problems_advance_together():
    task = {"dataset": "digits", "model": "logistic_ova"}
    tables = {"rounds": 1, "task": task, "partition": {"kind": "one_class", "clients": 10}, "selector": "all"}
    result = shoal.run({**tables, "method": {"name": "pso", "epochs": 150}})
    assert result.final_accuracy > 0.5
    assert "step_size" not in result.records[0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"inertia": -0.1}, "inertia must be >= 0, got -0.1; 0.7298, 1.49618 and 1.49618 are usual"),
        ({"c1": -1.0}, "c1 must be >= 0, got -1"),
        ({"c2": float("inf")}, "c2 must be >= 0, got inf"),
        ({"particles": 1}, "particles must be at least 2, got 1"),
    ],
)
def test_bad_fields_are_refused(fields, message):
    with pytest.raises(SpecError, match=message):
        Pso(**fields)
