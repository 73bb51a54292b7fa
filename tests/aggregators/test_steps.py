"""The step of a model: one pass over its vector, to the bits of one tensor after another."""

import torch

from shoal.aggregators.aggregator import advanced
from shoal.core.flat import Flat, flat


def test_a_step_of_a_vector_has_the_bits_of_steps_of_its_tensors():
    draw = torch.Generator().manual_seed(3)
    params = {"w": torch.randn(7, 5, generator=draw), "b": torch.randn(5, generator=draw)}
    sums = {name: 1e-3 * torch.randn(value.shape, generator=draw).double() for name, value in params.items()}
    for divisor in (1.0, 3.0, 100.0):
        whole = advanced(flat(params), flat(sums), divisor)
        assert isinstance(whole, Flat)
        for name, value in params.items():
            by_hand = (value.double() + sums[name] / divisor).float()
            assert torch.equal(whole[name], by_hand)
            assert torch.equal(advanced(params, sums, divisor)[name], by_hand)


def test_tensors_without_a_step_stay():
    params = {"w": torch.ones(2), "b": torch.full((3,), 2.0)}
    after = advanced(params, {"b": torch.ones(3, dtype=torch.float64)}, 2.0)
    assert after["w"].tolist() == [1, 1]
    assert after["b"].tolist() == [2.5, 2.5, 2.5]
