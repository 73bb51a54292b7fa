import torch

from shoal.core.control import next_controls
from shoal.core.flat import Flat, flat

UPDATE = {"w": torch.tensor([[2.0, -4.0]]), "b": torch.tensor([1.0])}
COMMON = {"w": torch.tensor([[0.5, 0.25]]), "b": torch.tensor([0.0])}
BEFORE = {"w": torch.tensor([[1.0, 1.0]]), "b": torch.tensor([-3.0])}


def test_by_hand():
    """With K eta = 2: the change is -update / 2 - c, and c_i + change is remembered."""
    own, change = next_controls(UPDATE, COMMON, BEFORE, 2.0)
    assert change["w"].tolist() == [[-1.5, 1.75]]
    assert change["b"].tolist() == [-0.5]
    assert own["w"].tolist() == [[-0.5, 2.75]]
    assert own["b"].tolist() == [-3.5]


def test_a_memory_that_does_not_lie_in_one_vector_does_afterwards():
    expected = next_controls(UPDATE, COMMON, BEFORE, 2.0)
    for before in (BEFORE, flat(BEFORE)):
        found = next_controls(flat(UPDATE), flat(COMMON), before, 2.0)
        assert all(type(each) is Flat for each in found)
        for one, other in zip(found, expected, strict=True):
            assert all(torch.equal(one[name], other[name]) for name in UPDATE)
