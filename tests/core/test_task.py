import pytest
import torch
from toy import KEY, blobs, spec

from shoal import SpecError
from shoal.core.types import Weights
from shoal.runs.build import Samples, load_dataset, make_task


def task_of(model, dataset="toy:blobs", **options):
    chosen = spec(task={"dataset": dataset, "model": model, **options})
    return make_task(chosen, Samples.of(load_dataset(chosen.task)))


def test_cross_entropy_by_hand():
    task = task_of("linear")
    outputs = torch.tensor([[0.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0]])
    y = torch.tensor([1, 0])
    expected = [torch.log(torch.tensor(4.0)), torch.log(1 + 3 * torch.exp(torch.tensor(-2.0)))]
    assert task.objective(outputs, y).item() == pytest.approx((sum(expected) / 2).item())


def test_one_versus_all_has_a_head_a_class():
    task = task_of("logistic_ova")
    assert task.loss == "one_versus_all"
    data = blobs()
    weights = Weights({name: torch.zeros_like(v) for name, v in task.init(KEY).params.items()}, {})
    losses = task.losses(weights, data.x_test, data.y_test)
    assert losses.shape == (160, 4)
    assert torch.allclose(losses, torch.log(torch.tensor(2.0)))
    assert task.objective(torch.zeros(5, 4), data.y_test[:5]).item() == pytest.approx(4 * 0.693147, rel=1e-5)


def test_a_regression_is_judged_by_its_squared_error():
    task = task_of("linear", "toy:line")
    assert task.loss == "squared_error"
    assert task.objective(torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 1.0])).item() == 2.5


def test_a_loss_that_does_not_fit_is_refused():
    with pytest.raises(SpecError, match="does not fit blobs, a task of 4 classes; leave it out"):
        task_of("linear", loss="squared_error")
    with pytest.raises(SpecError, match="does not fit line, a regression"):
        task_of("linear", "toy:line", loss="cross_entropy")


def test_initial_values_come_from_the_key():
    task = task_of("toy:net", norm="batch")
    first, again, other = task.init(KEY), task.init(KEY), task.init(KEY.fold(1))
    assert all(torch.equal(first.params[name], again.params[name]) for name in first.params)
    assert not torch.equal(first.params["0.weight"], other.params["0.weight"])


def test_a_training_pass_leaves_its_arguments_alone():
    task = task_of("toy:net", norm="batch")
    weights = task.init(KEY)
    before = {name: value.clone() for name, value in weights.buffers.items()}
    _, after = task.forward(weights, blobs().x_train[:9], train=True)
    assert all(torch.equal(weights.buffers[name], value) for name, value in before.items())
    assert int(after["1.num_batches_tracked"]) == 1
    assert not torch.equal(after["1.running_mean"], before["1.running_mean"])


def test_module_holds_the_weights_and_gives_the_same_outputs():
    task = task_of("toy:dropping")
    weights = task.init(KEY)
    module = task.module(weights)
    x = blobs().x_test
    assert not module.training
    assert torch.equal(module(x), task.forward(weights, x)[0])


def test_noise_is_drawn_from_the_key():
    task = task_of("toy:dropping")
    assert task.noise_shapes == {"1.noise": (12,)}
    first, again, other = task.noise(KEY, 5), task.noise(KEY, 5), task.noise(KEY.fold(1), 5)
    assert first["1.noise"].shape == (5, 12)
    assert torch.equal(first["1.noise"], again["1.noise"])
    assert not torch.equal(first["1.noise"], other["1.noise"])


@pytest.mark.parametrize("model", ["linear", "mlp", "toy:net", "toy:dropping"])
def test_the_head_of_the_features_is_the_model(model):
    task = task_of(model)
    weights, x = task.init(KEY), blobs().x_test
    features = task.features(weights, x)
    assert features.shape == (160, task.width)
    torch.testing.assert_close(task.head(weights.params, features), task.forward(weights, x)[0])


def test_heads_of_several_clients_at_once():
    task = task_of("toy:net")
    clients = [task.init(KEY.fold(client)).params for client in range(3)]
    features = KEY.fold("features").uniform((5, task.width))
    stacked = {name: torch.stack([params[name] for params in clients]) for name in task.head_names}
    assert task.head_names == ("3.weight", "3.bias")
    for params, outputs in zip(clients, task.head(stacked, features), strict=True):
        torch.testing.assert_close(outputs, task.head(params, features))


def test_the_toy_spec_resolves():
    assert spec().task.options == {"norm": "none"}
