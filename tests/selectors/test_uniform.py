import numpy as np
import pytest
from toy import KEY

import shoal
from shoal import SpecError
from shoal.core.types import Moment
from shoal.selectors.uniform import All, Uniform


def moment(key=KEY):
    return Moment(0, 0, False, key)


def test_count_or_fraction_says_how_many():
    assert len(Uniform(count=3).select((), range(10), {}, moment()).ids) == 3
    assert len(Uniform(fraction=0.25).select((), range(10), {}, moment()).ids) == 2
    assert len(Uniform().select((), range(50), {}, moment()).ids) == 5
    assert len(Uniform(fraction=0.01).select((), range(10), {}, moment()).ids) == 1
    assert len(Uniform(count=8).select((), range(3), {}, moment()).ids) == 3  # some have not arrived yet


def test_each_client_is_equally_likely():
    counts = np.zeros(10)
    for draw in range(2000):
        counts[list(Uniform(count=3).select((), range(10), {}, moment(KEY.fold(draw))).ids)] += 1
    assert np.abs(counts / 2000 - 0.3).max() < 0.04


def test_all_takes_everybody():
    assert All().select((), range(4), {}, moment()).ids == (0, 1, 2, 3)


def test_a_million_clients_cost_nothing():
    assert len(set(Uniform(count=50).select((), range(10**6), {}, moment()).ids)) == 50


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count must be at least 1, got 0"),
        ({"fraction": 3.0}, r"fraction must be in \(0, 1\], got 3; for a fixed cohort use count = 3"),
        ({"fraction": 0.0}, r"fraction must be in \(0, 1\], got 0"),
        ({"count": 3, "fraction": 0.1}, "give count or fraction, not both"),
    ],
)
def test_bad_values_are_refused(options, message):
    with pytest.raises(SpecError, match=message):
        Uniform(**options)


def test_a_cohort_larger_than_the_population():
    with pytest.raises(SpecError, match="count = 12 is more than the population of 10"):
        Uniform(count=12).check(10)


def test_small_populations_take_part_whole_unless_a_size_is_given():
    assert Uniform().sized(20) == Uniform(fraction=1.0)
    assert Uniform().sized(21) == Uniform()
    assert Uniform(count=2).sized(4) == Uniform(count=2)
    few = {"partition": {"kind": "iid", "clients": 4}, "task": {"dataset": "toy:blobs", "model": "toy:net"}}
    assert shoal.run({"rounds": 1, **few}).records[0]["cohort"] == [0, 1, 2, 3]
