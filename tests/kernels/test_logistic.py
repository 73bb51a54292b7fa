import math

import numpy as np
import pytest
from toy import KEY

from shoal.kernels.logistic import SHIFT, add_entropies

PROBLEMS, PARTICLES = 3, 5


def problem(samples, scale):
    draw = KEY.fold("logistic").numpy()
    outputs = scale * draw.normal(size=(samples, PROBLEMS * PARTICLES))
    return outputs, scale * draw.normal(size=(PROBLEMS, PARTICLES)), draw.integers(PROBLEMS, size=samples)


def summed(outputs, bias, labels, shifted=False):
    losses = np.zeros(bias.shape)
    add_entropies(outputs.copy(), bias, labels, shifted, losses)
    return losses


def signed(outputs, bias, labels):
    """[samples, problems, particles]: outputs, turned round for the class that a problem is about."""
    z = (outputs + bias.reshape(-1)).reshape(-1, PROBLEMS, PARTICLES)
    return np.where((labels[:, None] == np.arange(PROBLEMS))[:, :, None], -z, z)


@pytest.mark.parametrize("scale", [1e-9, 0.1, 3.0, 100.0, 1e4])
@pytest.mark.parametrize("samples", [1, 63, 64, 65, 1000])
def test_sums_of_cross_entropies(samples, scale):
    given = problem(samples, scale)
    z = signed(*given)
    np.testing.assert_allclose(summed(*given), np.logaddexp(0, z).sum(0), rtol=1e-13)
    chance = np.exp(-np.logaddexp(0, z))
    np.testing.assert_allclose(summed(*given, shifted=True), -np.log(chance + SHIFT).sum(0), rtol=1e-11)


def test_well_separated_samples_keep_their_digits():
    z = np.full((100, PROBLEMS * PARTICLES), -50.0)
    labels, bias = np.zeros(100, np.int64), np.zeros((PROBLEMS, PARTICLES))
    z[:, :PARTICLES] = 50.0
    np.testing.assert_allclose(summed(z, bias, labels), 100 * math.exp(-50), rtol=1e-13)


@pytest.mark.parametrize("size", [700.0, 708.5, 1e60, 1e200, 1e308, np.inf])
def test_enormous_outputs_cost_their_size_or_nothing(size):
    outputs, bias, labels = np.full((1, PROBLEMS * PARTICLES), -size), np.zeros((3, 5)), np.array([0])
    losses = summed(outputs, bias, labels)
    assert losses[0].tolist() == [size] * PARTICLES
    assert (losses[1:] < 1e-300).all()
    losses = summed(outputs, bias, labels, shifted=True)
    np.testing.assert_allclose(losses[0], -math.log(SHIFT))
    np.testing.assert_allclose(losses[1:], -math.log(1 + SHIFT))


@pytest.mark.parametrize("shifted", [False, True])
def test_what_is_no_number_stays_none(shifted):
    outputs, bias, labels = problem(70, 1.0)
    outputs[5, 3] = np.nan
    losses = summed(outputs, bias, labels, shifted).reshape(-1)
    assert np.flatnonzero(np.isnan(losses)).tolist() == [3]


def test_samples_add_up_over_calls():
    outputs, bias, labels = problem(128, 2.0)
    losses = np.zeros(bias.shape)
    for begin in (0, 64):
        part = slice(begin, begin + 64)
        add_entropies(outputs[part].copy(), bias, labels[part], False, losses)
    np.testing.assert_allclose(losses, summed(outputs, bias, labels), rtol=1e-14)
