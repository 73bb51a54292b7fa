import numpy as np
import pytest
from toy import KEY

from shoal.kernels import model_steps


def models(size):
    rng = KEY.fold("steps").numpy()
    return [rng.normal(size=size).astype(np.float32) for _ in range(3)]


@pytest.mark.parametrize("size", [0, 1, 7, 1001])
def test_the_square_of_a_step_and_its_product_with_the_one_before(size):
    new, now, before = (model.astype(np.float64) for model in models(size))
    square, inner = model_steps.turn(*models(size))
    assert square == pytest.approx(((new - now) ** 2).sum())
    assert inner == pytest.approx(((new - now) * (now - before)).sum())


def test_how_many_numbers_have_moved():
    before, after, _ = models(1001)
    after[:10] = before[:10]
    after[3], after[4] = np.nan, before[4] + np.float32(0.5)
    ends, counts = np.array([0, 10, 10, 700, 1001]), np.empty(4, np.int64)
    with np.errstate(invalid="ignore"):
        model_steps.count_moved(counts, before, after, ends, 0.25)
        moved = np.abs(after - before) > np.float32(0.25)
    assert counts.tolist() == [1, 0, moved[10:700].sum(), moved[700:].sum()]
    with pytest.raises(ValueError, match="do not fit"):
        model_steps.count_moved(counts, before, after, ends[:-1], 0.25)
