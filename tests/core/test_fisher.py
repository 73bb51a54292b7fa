import pytest
import torch
from torch import nn
from toy import KEY, setup

from shoal import Dataset
from shoal.core.fisher import fisher_diagonal, fisher_diagonals, normalised
from shoal.core.flat import flat
from shoal.core.task import LOSSES


def conv(shape, classes):
    """Layers of every kind that has a closed form."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(3, 2, 2, stride=2, bias=False),
        nn.Flatten(),
        nn.Linear(8, classes),
    )


def mixed(shape, classes):
    """With a layer that has none."""
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, classes))


def images():
    """Three classes of noise."""
    x = torch.from_numpy(KEY.fold("images").numpy().normal(size=(40, 1, 4, 4)).astype("float32"))
    y = torch.arange(40) % 3
    return Dataset("images", x, y, x, y, classes=3)


@pytest.mark.parametrize("loss", ["cross_entropy", "one_versus_all"])
@pytest.mark.parametrize("model", ["conv", "mixed"])
def test_squares_are_taken_sample_by_sample(model, loss):
    here = __name__
    made = setup(task={"dataset": f"{here}:images", "model": f"{here}:{model}", "loss": loss})
    task, x, y = made.federation.task, made.dataset.x_train, made.dataset.y_train
    weights = task.init(KEY)
    found = fisher_diagonal(task, weights, x, y)
    module = task.module(weights)
    wanted = {name: torch.zeros_like(value) for name, value in module.named_parameters()}
    for one, label in zip(x, y, strict=True):
        module.zero_grad()
        LOSSES[task.loss].each(module(one[None]), label[None]).sum().backward()
        for name, value in module.named_parameters():
            wanted[name] += value.grad.square() / len(x)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert torch.allclose(found[name], value, rtol=1e-4, atol=1e-8), name


def test_a_logistic_regression_has_the_analytic_diagonal():
    made = setup(task={"dataset": "toy:blobs", "model": "linear"})
    task, x, y = made.federation.task, made.dataset.x_train, made.dataset.y_train
    weights = task.init(KEY)
    found = fisher_diagonal(task, weights, x, y)
    weight, bias = (value.double() for value in weights.params.values())
    x = x.double()
    error = (x @ weight.T + bias).softmax(1) - nn.functional.one_hot(y, 4)
    wanted = (error.square().T @ x.square() / len(x), error.square().mean(0))
    for value, right in zip(found.values(), wanted, strict=True):
        assert float((value - right).abs().max()) < 1e-6


def test_normalised_values_reach_from_0_to_1():
    scaled = normalised(flat({"a": torch.tensor([1.0, 3.0]), "b": torch.tensor([[5.0]])}))
    assert scaled["a"].tolist() == [0.0, 0.5]
    assert scaled["b"].tolist() == [[1.0]]
    assert normalised(flat({"a": torch.ones(3)}))["a"].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("model", ["conv", "mixed"])
def test_clients_side_by_side_have_the_bits_of_each_alone(model):
    here = __name__
    made = setup(task={"dataset": f"{here}:images", "model": f"{here}:{model}"})
    task, data = made.federation.task, [made.side.data.train(i, None, KEY, full=False) for i in range(4)]
    weights = [task.init(KEY.fold(i)) for i in range(4)]
    together = fisher_diagonals(task, weights, data, 3)
    for found, one, own in zip(together, weights, data, strict=True):
        assert torch.equal(found.vector, fisher_diagonal(task, one, *own.all).vector)
