from dataclasses import replace

import numpy as np
import pytest
import torch
from toy import KEY, setup

from shoal.core.types import Weights
from shoal.parts.landscape import landscape_of, problems_of, unpacked

LINE = {"dataset": "toy:line", "model": "linear"}
LOGISTIC = {"dataset": "toy:blobs", "model": "logistic_ova"}
SOFTMAX = {"dataset": "toy:blobs", "model": "linear"}
NET = {"dataset": "toy:blobs", "model": "toy:net"}
WIDE = {"dataset": "boston", "model": "linear"}


def client(task, clients=4):
    made = setup({"name": "fsi"}, task=task, partition={"kind": "iid", "clients": clients}, selector="all")
    return made.federation.task, made.side.data.train(1, None, KEY, full=False)


def points_for(task, particles=6):
    problems = problems_of(task)
    dimension = sum(shape.numel() for shape in task.shapes.values()) // problems
    return torch.from_numpy(KEY.fold("points").numpy().normal(size=(dimension, problems, particles)))


def expected(task, data, points):
    """What the task itself says of each particle, summed over samples; heads apart if they are problems."""
    x, y = data.all
    found = []
    for particle in range(points.shape[2]):
        weights = Weights(unpacked(points[:, :, particle].T, task.shapes), {})
        found.append(task.losses(weights, x, y.double() if task.classes == 0 else y).sum(0))
    losses = torch.stack(found, 1)
    return losses if problems_of(task) > 1 else losses.sum(0, keepdim=True)


@pytest.mark.parametrize(
    ("spec", "problems"), [(LINE, 1), (WIDE, 1), (LOGISTIC, 4), (SOFTMAX, 1), (NET, 1)], ids=str
)
def test_losses_are_the_sums_of_the_tasks_own(spec, problems):
    task, data = client(spec)
    assert problems_of(task) == problems
    points = points_for(task)
    losses = landscape_of(task, data, "stable").losses(points)
    assert losses.shape == (problems, 6)
    assert losses.dtype == torch.float64
    torch.testing.assert_close(losses, expected(task, data, points), rtol=1e-11, atol=0)


def test_a_regression_with_fewer_samples_than_dimensions():
    task, data = client(WIDE, clients=100)
    assert data.count < 14
    points = points_for(task)
    losses = landscape_of(task, data, "stable").losses(points)
    torch.testing.assert_close(losses, expected(task, data, points), rtol=1e-11, atol=0)


def test_the_regression_keeps_its_digits_where_the_fit_is_close():
    """A fit to 1e-7 of numbers around 1000: in sums of squares all of it would be lost."""
    draw = KEY.fold("close").numpy()
    x, truth = 1000 * draw.random((50, 3)).astype(np.float32), np.array([1.0, -2.0, 3.0, 0.5])
    y = (np.c_[x.astype(np.float64), np.ones(50)] @ truth).astype(np.float32)
    task, data = client(LINE)
    held = replace(data, x=torch.from_numpy(x), y=torch.from_numpy(y), rows=np.arange(50))
    losses = landscape_of(task, held, "stable").losses(torch.from_numpy(truth)[:, None, None])
    residuals = np.c_[x.astype(np.float64), np.ones(50)] @ truth - y
    assert float(losses[0, 0]) == pytest.approx(float(residuals @ residuals), rel=1e-6)


def test_the_papers_loss_adds_a_thousandth_to_every_probability():
    task, data = client(LOGISTIC)
    points = points_for(task)
    x, y = data.all
    z = torch.einsum("nd,dps->nps", x.double(), points[:-1]) + points[-1]
    own = (y[:, None] == torch.arange(4))[:, :, None]
    chance = torch.sigmoid(torch.where(own, z, -z))
    losses = landscape_of(task, data, "paper").losses(points)
    torch.testing.assert_close(losses, -torch.log(chance + 1e-3).sum(0), rtol=1e-12, atol=0)


@pytest.mark.parametrize("spec", [LINE, LOGISTIC, SOFTMAX, NET], ids=str)
@pytest.mark.parametrize("size", [1e60, 1e200])
def test_enormous_parameters_warn_of_nothing(spec, size):
    task, data = client(spec)
    losses = landscape_of(task, data, "stable").losses(size * points_for(task).sign())
    if spec in (LINE, LOGISTIC):
        assert not losses.isnan().any()
    assert (losses[losses.isfinite()] >= 0).all()


def test_particles_are_judged_independently():
    for spec in (LINE, LOGISTIC, NET):
        task, data = client(spec)
        points = points_for(task)
        land = landscape_of(task, data, "stable")
        reversed_ = land.losses(points.flip(2).contiguous())
        torch.testing.assert_close(reversed_.flip(1), land.losses(points), rtol=1e-14, atol=0)
