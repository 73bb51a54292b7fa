import math

import numpy as np
import pytest
import torch
from toy import CURVATURES, OPTIMA, own_models, own_on_quadratics, same, start_on_quadratics

from shoal import SpecError
from shoal.methods.fedamp import FedAMP
from shoal.parts.attention import attention, mixed_models, model_vectors, squared_distances, squared_lengths

MODELS = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], np.float32)
ALL = range(3)
ORIGIN = np.array([0.5, -1.0], np.float32)


def shares(models, sigma, alpha):
    """xi of all models."""
    squares = np.array(squared_lengths(map(torch.from_numpy, models), ORIGIN))
    distances = squared_distances(model_vectors(map(torch.from_numpy, models)), ALL, squares, ORIGIN)
    return torch.from_numpy(attention(distances, ALL, sigma, alpha))


def test_attention_by_hand():
    """Squared distances 1, 4 and 5; xi = alpha / sigma exp(-d / sigma)."""
    xi = shares(MODELS, sigma=2.0, alpha=0.5)
    assert float(xi[0, 1]) == pytest.approx(0.25 * math.exp(-0.5))
    assert float(xi[0, 2]) == pytest.approx(0.25 * math.exp(-2.0))
    assert float(xi[1, 2]) == pytest.approx(0.25 * math.exp(-2.5))
    assert torch.allclose(xi.sum(1), torch.ones(3, dtype=torch.float64))
    assert torch.equal(xi, xi.T)


def test_defaults_fit_the_distances():
    """sigma is the median of 1, 1, 4, 4, 5, 5, the lower of the middle ones; alpha = sigma / 2."""
    xi = shares(MODELS, None, None)
    assert float(xi[0, 1]) == pytest.approx(0.5 * math.exp(-1 / 4))
    assert bool((xi.diagonal() >= 0).all())


def test_a_large_alpha_leaves_no_negative_share():
    xi = shares(MODELS, sigma=10.0, alpha=100.0)
    assert torch.equal(xi.diagonal(), torch.zeros(3, dtype=torch.float64))
    assert torch.allclose(xi.sum(1), torch.ones(3, dtype=torch.float64))


def test_distant_or_equal_models_stay_as_they_are():
    far = shares(1e4 * MODELS, sigma=1.0, alpha=0.5)
    assert torch.equal(far, torch.eye(3, dtype=torch.float64))
    equal = np.full((3, 2), 0.7, np.float32)
    mixed = mixed_models(
        shares(equal, None, None).numpy(), model_vectors(map(torch.from_numpy, equal)), ORIGIN
    )
    assert torch.stack(mixed).numpy() == pytest.approx(equal)


@pytest.mark.parametrize("mu", [1.0, 2.0])
def test_two_rounds_by_hand(mu):
    """Of two models at the only distance there is, each takes 1 / e of the other."""
    lr, steps = 0.1, 3
    w = u = np.full(2, start_on_quadratics())
    for _ in range(3):
        ends = (CURVATURES * OPTIMA + mu * u) / (CURVATURES + mu)
        w = ends + (1 - lr * (CURVATURES + mu)) ** steps * (w - ends)
        u = w + (w[::-1] - w) / math.e
    found = own_on_quadratics({"name": "fedamp", "mu": mu}, 3, lr, steps)
    assert found == pytest.approx(w.tolist(), abs=1e-5)


def test_it_is_not_local_training():
    assert not same(own_models("fedamp"), own_models("local"))


@pytest.mark.parametrize("field", ["sigma", "alpha"])
def test_wrong_fields_are_named(field):
    with pytest.raises(SpecError, match=f"{field} must be > 0, got 0; leave it out"):
        FedAMP(**{field: 0.0})
