import numpy as np
import pytest

from shoal.kernels.mutation import extend_parts


def test_each_part_goes_its_own_way():
    rng = np.random.default_rng(0)
    now, before = (rng.normal(size=20).astype(np.float32) for _ in range(2))
    ends, by, out = np.array([0, 3, 3, 12, 20]), np.array([4.0, 7.0, 0.0, -2.8]), np.empty(20, np.float32)
    extend_parts(out, now, before, ends, by)
    factors = np.repeat(by, np.diff(ends))
    assert np.array_equal(
        out, (now.astype(float) + factors * (now.astype(float) - before)).astype(np.float32)
    )


def test_a_part_that_stays_does_not_see_where_it_came_from():
    out = np.empty(2, np.float32)
    extend_parts(
        out, np.ones(2, np.float32), np.array([np.nan, 0], np.float32), np.array([0, 2]), np.zeros(1)
    )
    assert out.tolist() == [1, 1]


@pytest.mark.parametrize("ends", [[0, 2], [0, 5, 4], [1, 2, 4], [0, 4]])
def test_parts_must_make_up_the_whole(ends):
    three = (np.zeros(4, np.float32) for _ in range(3))
    with pytest.raises(ValueError, match=r"fit together|make up"):
        extend_parts(*three, np.array(ends), np.ones(2))
