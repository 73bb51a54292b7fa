import numpy as np
import pytest

from shoal.kernels.columns import take


@pytest.mark.parametrize("size", [1, 4096, 4097, 20000])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_every_choice_takes_its_columns(size, share):
    draw = np.random.default_rng(size)
    row, count = draw.normal(size=size).astype(np.float32), int(share * size)
    places = np.stack([np.sort(draw.choice(size, count, replace=False)) for _ in range(3)])
    found = np.empty(places.shape, np.float32)
    take(row, places, found)
    assert np.array_equal(found, row[places])


@pytest.mark.parametrize("places", [[-1, 2], [2, 9000], [5000, 2]])
def test_what_cannot_be_taken(places):
    with pytest.raises(ValueError, match="places must be ascending, and lie in the row"):
        take(np.zeros(9000, np.float32), np.array([places]), np.empty((1, 2), np.float32))


def test_room_is_needed():
    with pytest.raises(ValueError, match="as much room"):
        take(np.zeros(9, np.float32), np.array([[1, 2]]), np.empty((1, 3), np.float32))
