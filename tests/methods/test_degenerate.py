"""Settings under which one method must equal another to the bit."""

import pytest
import torch
from toy import own_models, played, same

from shoal.solver import compiled_sgd

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
        ({"name": "fedper", "layers": 0}, "fedavg", 2),
        ({"name": "fedfina", "layers": ["*"]}, "fedavg", 2),
        ({"name": "partialfed", "load": ["*"]}, "fedavg", 2),
        ({"name": "partialfed", "load": ["*"], "upload": "loaded"}, "fedavg", 2),
        ({"name": "fedlg", "budget": 1.0}, UNIFORM, 2),
        ("ditto", "fedavg", 2),
        ({"name": "fedlp", "p": 1.0}, "fedavg", 2),
        ({"name": "fedlp", "p": 1.0, "weights": "uniform"}, UNIFORM, 2),
        ({"name": "fedlp", "p": 1.0, "depths": [2]}, "fedavg", 2),
        ({"name": "fedlps", "ratios": [0.0]}, "fedavg", 2),
        ({"name": "fedlps", "ratios": [0.0], "weights": "uniform"}, UNIFORM, 2),
        ({"name": "apfl", "adaptive": True}, "fedavg", 2),
        ({"name": "fedlg", "layers": ["*"]}, UNIFORM, 2),
    ],
)
def test_a_degenerate_setting_equals_the_simpler_method(method, twin, rounds, norm):
    task = {"dataset": "toy:blobs", "model": "toy:net", "norm": norm}
    local = {"lr": 0.1, "batch": 8, "epochs": 2, "momentum": 0.5}
    first, second = (played(m, rounds, task=task, local=local) for m in (method, twin))
    assert same(first.state.model, second.state.model)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_fedrep_that_never_trains_its_heads_is_fedavg_with_a_frozen_last_layer(norm, kernels, monkeypatch):
    """To the bit where torch trains both; the kernels can hold FedRep's heads, and know no frozen layers."""
    if not kernels:
        monkeypatch.setattr(compiled_sgd, "fits", lambda task, terms: False)
    task = {"dataset": "toy:blobs", "model": "toy:net", "norm": norm}
    local = {"lr": 0.1, "batch": 8, "epochs": 2, "momentum": 0.5}
    first = played({"name": "fedrep", "body_epochs": 2}, 2, task=task, local=local)
    second = played("fedavg", 2, task={**task, "frozen": ["3.*"]}, local=local)
    if kernels and norm == "none":
        pairs = [(first.state.model.params[n], v) for n, v in second.state.model.params.items()]
        assert all(torch.allclose(own, other, rtol=1e-5, atol=1e-6) for own, other in pairs)
    else:
        assert same(first.state.model, second.state.model)


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize(
    ("method", "twin"),
    [
        ({"name": "partialfed", "upload": "loaded"}, "fedper"),
        ("partialfed", "fedper"),  # the average of the layers that nobody loads is of no consequence
        ({"name": "ditto", "mu": 0.0}, "local"),
        ({"name": "apfl", "alpha": 1.0}, "local"),
        ({"name": "apfl", "alpha": 0.0}, "fedavg"),
        ({"name": "fedamp", "mu": 0.0}, "local"),
        (
            {"name": "partialfed", "load": ["0.*"], "upload": "loaded"},
            {"name": "fedlg", "layers": ["0.*"], "weights": "samples"},
        ),
    ],
)
def test_a_degenerate_setting_gives_clients_the_same_models(method, twin, norm):
    task = {"dataset": "toy:blobs", "model": "toy:net", "norm": norm}
    local = {"lr": 0.1, "batch": 8, "epochs": 2, "momentum": 0.5}
    first, second = (own_models(m, 3, task=task, local=local) for m in (method, twin))
    assert same(first, second)


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
