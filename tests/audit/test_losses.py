import pytest
import torch
from audit.upload import examined

from shoal.audit.losses import Statistics, logistic_sample, regression, unknowns
from shoal.core.key import Key


def test_the_statistics_of_a_regression_come_out_of_its_losses():
    x, y = torch.tensor([[1.0], [2.0]]), torch.tensor([3.0, 5.0])
    points = torch.from_numpy(Key.from_seed(1).numpy().random((6, 2)))
    answers = ((points[:, :1] * x.T.double() + points[:, 1:] - y.double()) ** 2).sum(1)
    assert unknowns(2) == 6
    found = regression(points, answers)
    for got, by_hand in zip(found, ([[5.0, 3.0], [3.0, 2.0]], [13.0, 8.0], 34.0), strict=True):
        assert torch.allclose(got, torch.tensor(by_hand, dtype=torch.float64))
    for got, computed in zip(Statistics.of(x, y), found, strict=True):
        assert torch.allclose(got, computed)


def test_a_single_sample_comes_out_of_logistic_losses():
    draws = Key.from_seed(2).numpy()
    x, points = torch.tensor([0.3, 0.0, 1.0]).double(), torch.from_numpy(draws.normal(size=(9, 3, 4)))
    margins = points[..., :-1] @ x + points[..., -1]
    margins[:, 1] *= -1  # its class
    found, label = logistic_sample(points, torch.nn.functional.softplus(margins))
    assert torch.allclose(found, x)
    assert label == 1


def test_a_swarm_reveals_what_a_regression_needs():
    """Boston: 14 parameters, so 120 answers tell everything of X'X and X'y."""
    found = examined("fsi:initial_range=1.0", dataset="boston", model="linear", images=3, samples=20)
    learned = found["statistics"]
    assert (learned["answers"], learned["unknowns"]) == (101 * 20, 120)
    assert learned["gram_error"] < 1e-9
    assert learned["moment_error"] < 1e-9


def test_a_swarm_reveals_single_digits():
    found = examined("fsi", model="logistic_ova", images=3)
    assert found["attack"] == "losses"
    assert min(found["knows"]["psnrs"]) > 60
    assert found["knows"]["labels"] == 1.0


@pytest.mark.parametrize("given", [{"model": "mlp"}, {"model": "logistic_ova", "samples": 2}])
def test_where_no_attack_is_known_none_is_claimed(given):
    found = examined("fsi:epochs=2", images=2, **given)
    assert (found["attack"], found["knows"], found["beside"]) == (None, None, ["losses"])
