import numpy as np
import pytest
import torch
from toy import (
    CURVATURES,
    OPTIMA,
    averaged_step,
    own_models,
    own_on_quadratics,
    same,
    setup,
    start_on_quadratics,
)

from shoal import SpecError
from shoal.methods.apfl import APFL, APFLMemory, next_alpha


def test_one_local_step_is_the_papers_algorithm_by_hand():
    lr, alpha = 0.1, 0.25
    w = start_on_quadratics()
    v = np.full(2, w)
    for _ in range(3):
        mixed = alpha * v + (1 - alpha) * w
        v = v - lr * alpha * CURVATURES * (mixed - OPTIMA)
        w += averaged_step(w, lr, 1)
    found = own_on_quadratics({"name": "apfl", "alpha": alpha, "weights": "uniform"}, 3, lr, 1)
    assert found == pytest.approx((alpha * v + (1 - alpha) * w).tolist(), abs=1e-5)


def test_alpha_follows_its_gradient():
    """d/d alpha of (h / 2) (alpha v + (1 - alpha) w - a)^2 is h (mixed - a) (v - w)."""
    made = setup(
        task={"dataset": "toy:quadratics", "model": "toy:scalar"}, partition="natural", selector="all"
    )
    task, data = made.federation.task, made.side.data.train(1, None, made.federation.key, full=False)
    start = task.init(made.federation.key)
    own, sent = (start._replace(params={"weight": torch.full((1, 1), x)}) for x in (2.0, 1.0))
    found = next_alpha(task, APFLMemory(own, torch.tensor(0.5, dtype=torch.float64)), sent, data, 0.01)
    slope = CURVATURES[1] * (1.5 - OPTIMA[1]) * (2.0 - 1.0)
    assert float(found) == pytest.approx(0.5 - 0.01 * slope, abs=1e-6)


def test_learned_shares_differ_between_clients():
    adaptive, fixed = (own_models({"name": "apfl", "adaptive": a}, 3) for a in (True, False))
    assert not same(adaptive, fixed)


def test_a_wrong_share_is_named():
    with pytest.raises(SpecError, match=r"alpha must be a share in \[0, 1\], got 2"):
        APFL(alpha=2.0)
