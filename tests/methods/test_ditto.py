import numpy as np
import pytest
from toy import CURVATURES, OPTIMA, averaged_step, own_models, own_on_quadratics, same, start_on_quadratics

from shoal import SpecError
from shoal.methods.ditto import Ditto


def test_own_models_by_hand():
    """A client goes part of the way from v to (h a + mu w) / (h + mu), where w is what it was sent."""
    lr, mu, steps = 0.1, 2.0, 3
    w = start_on_quadratics()
    v = np.full(2, w)
    for _ in range(3):
        ends = (CURVATURES * OPTIMA + mu * w) / (CURVATURES + mu)
        v = ends + (1 - lr * (CURVATURES + mu)) ** steps * (v - ends)
        w += averaged_step(w, lr, steps)
    found = own_on_quadratics({"name": "ditto", "mu": mu, "weights": "uniform"}, 3, lr, steps)
    assert found == pytest.approx(v.tolist(), abs=1e-5)


def test_the_pull_makes_a_difference():
    assert not same(own_models({"name": "ditto", "mu": 0.5}), own_models("local"))


def test_a_client_trains_two_models():
    assert Ditto().passes == 2 * Ditto().local.epochs


def test_a_wrong_mu_is_named():
    with pytest.raises(SpecError, match="mu must be >= 0, got -1"):
        Ditto(mu=-1.0)
