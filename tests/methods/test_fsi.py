import itertools
import warnings

import numpy as np
import pytest
import torch
from toy import KEY, same, setup, table

import shoal
from shoal.core.errors import SpecError
from shoal.loop import advance, start
from shoal.methods.fsi import Fsi
from shoal.runs.runner import one_thread

# of the intercept and the 13 features, as the paper's author printed them
PAPER = [
    40.293629, -0.119997, 0.057, 0.003984, 4.126981, -20.500245, 3.38025, 0.007568, -1.711897, 0.334748,
    -0.01178, -0.902317, 0.008719, -0.555843,
]  # fmt: skip


def boston(w1, w2, epochs=1000, rounds=1, seed=0, clients=4, **fields):
    method = {"name": "fsi", "w1": w1, "w2": w2, "particles": 30, "alpha": 100.0, "patience": 5}
    return {
        "seed": seed,
        "rounds": rounds,
        "task": {"dataset": "boston", "model": "linear"},
        "partition": {"kind": "iid", "clients": clients},
        "selector": "all",
        "method": {**method, "initial_range": 1.0, "epochs": epochs, **fields},
    }


def theta(result):
    model = result.model().double()
    return np.concatenate([model.fc.bias.detach(), model.fc.weight.detach()[0]])


def states(tables, rounds):
    """The state after each round."""
    made = setup(tables.pop("method"), **tables)
    with one_thread():
        progress = start(made.federation)
        for _ in range(rounds):
            progress, _ = advance(made.federation, progress)
            yield progress.state


def test_least_squares_on_boston_is_the_papers_benchmark():
    data = shoal.data.DATASETS["boston"]()
    x, test = (np.c_[np.ones(len(v)), v.double().numpy()] for v in (data.x_train, data.x_test))
    found, *_ = np.linalg.lstsq(x, data.y_train.double().numpy())
    np.testing.assert_allclose(found, PAPER, rtol=0, atol=6e-5)  # features are in float32 here
    assert float(np.mean((test @ found - data.y_test.double().numpy()) ** 2)) == pytest.approx(
        23.1956, abs=5e-5
    )


@pytest.mark.parametrize(("w1", "w2", "seed"), [(0.0, 1.0, 0), (0.2, 0.8, 1)])
def test_without_mutation_the_swarm_reaches_least_squares(w1, w2, seed):
    result = shoal.run(boston(w1, w2, 60_000, seed=seed))
    assert result.final_mse == pytest.approx(23.1956, abs=5e-4)
    np.testing.assert_allclose(theta(result), PAPER, rtol=1e-3)


def test_with_inertia_alone_the_swarm_is_frozen():
    """A particle at rest that nothing pulls: the best of the initial swarm is what is left."""
    early, late = (list(states(boston(1.0, 0.0, 50), rounds))[-1] for rounds in (1, 3))
    assert same(early.particles, late.particles)
    assert not late.velocities.any()
    assert late.losses.min() / late.samples > 1e3


@pytest.mark.parametrize(("w1", "w2"), [(0.0, 0.0), (0.0, 0.3), (0.6, 0.2), (0.2, 0.8)])
def test_no_particles_loss_ever_rises(w1, w2):
    losses = [state.losses for state in states(boston(w1, w2, 1), 120)]
    assert all(bool((after <= before).all()) for before, after in itertools.pairwise(losses))
    assert losses[-1].min() < losses[0].min()


def test_the_best_particle_moves_by_mutation_alone():
    (pulled,) = states(boston(0.0, 1.0, 20), 1)
    best = int(pulled.losses.argmin())
    assert same(pulled.candidates[..., best].clone(), pulled.particles[..., best].clone())
    (mutated,) = states(boston(0.0, 0.9, 20), 1)
    best = int(mutated.losses.argmin())
    assert (mutated.candidates[..., best] != mutated.particles[..., best]).all()


@pytest.mark.parametrize("model", ["linear", "logistic_ova"])
def test_how_samples_are_dealt_does_not_matter(model):
    """That is all there is to its robustness: sums do not know who added what."""
    task = {"dataset": "boston" if model == "linear" else "toy:blobs", "model": model}
    found = []
    for partition in (
        {"kind": "iid", "clients": 4},
        {"kind": "iid", "clients": 7},
        {"kind": "quantity", "clients": 5},
    ):
        tables = boston(0.2, 0.5, 100)
        tables |= {"task": task, "partition": partition}
        found.append(list(states(tables, 1))[-1])
    for other in found[1:]:
        torch.testing.assert_close(other.particles, found[0].particles, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(other.losses, found[0].losses, rtol=1e-9, atol=1e-9)
        assert same(other.step_sizes, found[0].step_sizes)


def test_a_swarm_that_has_collapsed_stays_so():
    """Without mutation nothing leaves the point where all particles are."""
    made = setup(boston(0.0, 1.0)["method"], **{k: v for k, v in boston(0, 1).items() if k != "method"})
    progress = start(made.federation)
    state = progress.state
    points = state.particles[..., :1].expand_as(state.particles).contiguous()
    progress = progress._replace(state=state._replace(particles=points, candidates=points))
    with one_thread():
        after, _ = advance(made.federation, progress)
    assert same(after.state.particles, points)
    assert not after.state.velocities.any()


def test_a_small_network_learns_from_losses():
    result = shoal.run(
        table(
            {"name": "fsi", "epochs": 60},
            task={"dataset": "toy:blobs", "model": "mlp", "hidden": 8},
            partition={"kind": "one_class", "clients": 4},
            selector="all",
            rounds=2,
        )
    )
    first, last = result.records
    assert last["best_loss"] < first["best_loss"] < 1.0
    assert result.final_accuracy > 0.9


@pytest.mark.parametrize("size", [1e60, 1e200])
@pytest.mark.parametrize("task", ["line", "blobs"])
def test_enormous_parameters_give_neither_nan_nor_warnings(size, task):
    tables = boston(0.2, 0.3, 20, rounds=2, initial_range=size)
    tables["task"] = {"dataset": f"toy:{task}", "model": "linear" if task == "line" else "logistic_ova"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for state in states(dict(tables), 2):
            assert not any(value.isnan().any() for value in state if isinstance(value, torch.Tensor))
        records = shoal.run(tables).records
    if task == "line" and size == 1e200:  # whose squares are beyond all numbers
        assert records[-1]["nonfinite_from"] == [0, 1, 2, 3]
    else:
        assert "nonfinite_from" not in records[-1]


def test_the_step_size_has_a_limit_if_wanted():
    assert max(float(s.step_sizes) for s in states(boston(0.0, 0.3, 2, alpha=0.001), 60)) > 0.01
    limited = boston(0.0, 0.3, 2, alpha=0.001, alpha_max=0.01)
    assert max(float(s.step_sizes) for s in states(limited, 60)) == 0.01


def test_epochs_may_be_dealt_to_rounds_in_any_way():
    """Also across the border between two blocks of random numbers."""
    (whole,) = states(boston(0.2, 0.4, 2100), 1)
    assert same(whole, list(states(boston(0.2, 0.4, 700), 3))[-1])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"w1": -0.1}, r"w1 must be in \[0, 1\], got -0.1"),
        ({"w2": -0.1}, r"w2 must be in \[0, 1\], got -0.1"),
        (
            {"w1": 0.5, "w2": 0.6},
            "w1 [+] w2 must be at most 1, got 0.5 [+] 0.6; the rest up to 1 is mutation",
        ),
        ({"alpha": 0.0}, "alpha must be > 0, got 0"),
        ({"patience": 0}, "patience must be at least 1, got 0"),
        ({"alpha_max": 1e-4}, "alpha_max must be at least alpha = 0.001, got 0.0001"),
        ({"particles": 1}, "particles must be at least 2, got 1"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
    ],
)
def test_bad_fields_are_refused(fields, message):
    with pytest.raises(SpecError, match=message):
        Fsi(**fields)


@pytest.mark.parametrize(
    ("w1", "w2"), [(0.8, 0.2), (0.7, 0.3), (0.1, 0.9), (0.3, 0.7), (1 / 3, 2 / 3), (1.0, 0.0)]
)
def test_weights_that_fill_up_one_leave_no_mutation(w1, w2):
    assert Fsi(w1=w1, w2=w2).mutation == 0
    assert Fsi(w1=0.2, w2=0.3).mutation == pytest.approx(0.5)


def test_local_training_is_refused():
    with pytest.raises(SpecError, match="method fsi does not train on the client; remove"):
        shoal.spec.from_table({"method": "fsi", "local": {"lr": 0.1}})


def test_the_key_decides_everything():
    one, again, other = (list(states(boston(0.2, 0.3, 20, seed=seed), 1))[-1] for seed in (1, 1, 2))
    assert same(one, again)
    assert not same(one.particles, other.particles)
    assert KEY.fold("swarm").words != KEY.fold("particles").words
