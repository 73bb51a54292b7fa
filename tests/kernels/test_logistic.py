import math

import numpy as np
import pytest
from toy import KEY

from shoal.kernels.logistic import SHIFT, entropies, grouped

FEATURES, PROBLEMS, PARTICLES = 11, 3, 5


def problem(samples, scale):
    """Samples of which most features are 0, their labels, and models."""
    draw = KEY.fold("logistic").numpy()
    x = draw.normal(size=(samples, FEATURES)) * (draw.random((samples, FEATURES)) < 0.3)
    points = scale * draw.normal(size=(FEATURES + 1, PROBLEMS, PARTICLES))
    return x, draw.integers(PROBLEMS, size=samples), points


def summed(x, labels, points, shifted=False):
    return entropies(grouped(x, labels), points, shifted)


def signed(x, labels, points):
    """[samples, problems, particles]: outputs, turned round for the class that a problem is about."""
    z = np.einsum("nf,fps->nps", x, points[:-1]) + points[-1]
    return np.where((labels[:, None] == np.arange(PROBLEMS))[:, :, None], -z, z)


def outputs(z, samples):
    """Samples of one feature and models whose output is z [problems] for all of them, in each particle."""
    points = np.zeros((2, PROBLEMS, PARTICLES))
    points[0] = np.array(z)[:, None]
    return np.ones((samples, 1)), np.zeros(samples, np.int64), points


@pytest.mark.parametrize("scale", [1e-9, 0.1, 3.0, 100.0, 1e4])
@pytest.mark.parametrize("samples", [1, 4, 63, 64, 65, 1000])
def test_sums_of_cross_entropies(samples, scale):
    given = problem(samples, scale)
    z = signed(*given)
    np.testing.assert_allclose(summed(*given), np.logaddexp(0, z).sum(0), rtol=1e-12)
    chance = np.exp(-np.logaddexp(0, z))
    np.testing.assert_allclose(summed(*given, shifted=True), -np.log(chance + SHIFT).sum(0), rtol=1e-11)


def test_only_features_that_are_0_in_a_whole_group_are_left_out():
    x = np.zeros((6, 5))
    x[0, 1], x[3, 4], x[5, 0] = 2.0, 3.0, 4.0
    starts, features, values, _ = grouped(x, np.zeros(6, np.int64))
    assert starts.tolist() == [0, 2, 3]
    assert features.tolist() == [1, 4, 0]
    assert values.tolist() == [[2, 0, 0, 0], [0, 0, 0, 3], [0, 4, 0, 0]]


def test_samples_without_features_cost_what_the_bias_says():
    _, _, points = problem(1, 1.0)
    labels = np.arange(7) % PROBLEMS
    x = np.zeros((7, FEATURES))
    np.testing.assert_allclose(
        summed(x, labels, points), np.logaddexp(0, signed(x, labels, points)).sum(0), rtol=1e-13
    )


def test_nobody_has_no_loss():
    x, labels, points = problem(1, 1.0)
    assert not summed(x[:0], labels[:0], points).any()


def test_well_separated_samples_keep_their_digits():
    np.testing.assert_allclose(summed(*outputs([50.0, -50.0, -50.0], 100)), 100 * math.exp(-50), rtol=1e-13)


@pytest.mark.parametrize("size", [700.0, 708.5, 1e60, 1e200, 1e308, np.inf])
def test_enormous_outputs_cost_their_size_or_nothing(size):
    given = outputs([-size] * PROBLEMS, 1)
    losses = summed(*given)
    assert losses[0].tolist() == [size] * PARTICLES
    assert (losses[1:] < 1e-300).all()
    losses = summed(*given, shifted=True)
    np.testing.assert_allclose(losses[0], -math.log(SHIFT))
    np.testing.assert_allclose(losses[1:], -math.log(1 + SHIFT))


@pytest.mark.parametrize("shifted", [False, True])
def test_what_is_no_number_stays_none(shifted):
    x, labels, points = problem(70, 1.0)
    points[4, 0, 3] = np.nan
    assert np.flatnonzero(np.isnan(summed(x, labels, points, shifted))).tolist() == [3]
