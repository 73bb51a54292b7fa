"""Settings under which one method must equal another to the bit."""

import pytest
from toy import played, same

UNIFORM = {"name": "fedavg", "weights": "uniform"}


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize(
    ("method", "twin", "rounds"),
    [
        ({"name": "fedprox", "mu": 0.0}, "fedavg", 2),
        ({"name": "fedprox", "mu": 0.0, "weights": "uniform"}, UNIFORM, 2),
        ({"name": "fedmut", "alpha": 0.0}, UNIFORM, 2),
        ({"name": "fedqp", "alpha": 0.0, "p": 0.7}, UNIFORM, 2),
        ({"name": "fedqp", "alpha": 0.0, "p": "auto", "mutation": "mixed"}, UNIFORM, 2),
        ({"name": "fedqp", "alpha": 0.0, "weights": "samples"}, "fedavg", 2),
        ({"name": "fedqp", "p": 0.0, "acc": 0.3}, "fedmut", 3),
        ({"name": "fedntd", "beta": 0.0}, "fedavg", 2),
        ({"name": "fedntd", "beta": 0.0, "weights": "uniform"}, UNIFORM, 2),
        ({"name": "fedgen", "g_a": 0.0, "g_b": 0.0, "steps": 2}, "fedavg", 2),
        ({"name": "fedgen", "g_a": 0.0, "g_b": 0.0, "steps": 2, "weights": "uniform"}, UNIFORM, 2),
        ({"name": "fedgen", "steps": 2}, "fedavg", 1),  # nothing was generated yet
        ("scaffold", UNIFORM, 1),
        ({"name": "scaffold", "weights": "samples"}, "fedavg", 1),
    ],
)
def test_a_degenerate_setting_equals_the_simpler_method(method, twin, rounds, norm):
    task = {"dataset": "toy:blobs", "model": "toy:net", "norm": norm}
    local = {"lr": 0.1, "batch": 8, "epochs": 2, "momentum": 0.5}
    first, second = (played(m, rounds, task=task, local=local) for m in (method, twin))
    assert same(first.state.model, second.state.model)


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_fedbn_without_batch_norm_is_fedavg(weighting):
    first = played({"name": "fedbn", "weights": weighting})
    second = played({"name": "fedavg", "weights": weighting})
    assert same(first.state.model, second.state.model)


@pytest.mark.parametrize(
    ("method", "rounds"),
    [
        ({"name": "fedprox", "mu": 1.0}, 1),
        ("scaffold", 2),
        ("local", 1),
        ("fedmut", 2),
        ("fedqp", 2),
        ({"name": "fedntd", "weights": "uniform"}, 1),
        ({"name": "fedgen", "g_a": 0.1, "g_b": 0.0, "weights": "uniform"}, 2),
        ({"name": "fedgen", "g_a": 0.0, "g_b": 0.1, "weights": "uniform"}, 2),
        ("clusamp", 1),
    ],
)
def test_usual_settings_differ_from_fedavg(method, rounds):
    first, second = played(method, rounds), played(UNIFORM, rounds)
    model = getattr(first.state, "model", None)
    assert model is None or not same(model, second.state.model)
