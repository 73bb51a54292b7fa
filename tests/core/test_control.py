import pickle

import numpy as np
import pytest
import torch

from shoal.core.control import ControlChanges, next_controls
from shoal.core.flat import Flat, flat
from shoal.core.tree import row, zeros_like

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


@pytest.fixture(params=[1, 3], ids=["one shift", "a shift each"])
def three(request):
    """Three clients' changes, computed on access, and what they must be."""
    generator = torch.Generator().manual_seed(0)
    layout = flat(UPDATE).layout
    updates = layout.tree(torch.randn(3, 3, generator=generator))
    common = list(torch.randn(request.param, 3, generator=generator))
    reach = np.array([0.3, 2.0, 0.7], np.float32)
    shifts = common * (3 // len(common))
    expected = [
        next_controls(row(updates, i), layout.tree(shifts[i]), zeros_like(row(updates, i)), reach[i]).change
        for i in range(3)
    ]
    return updates, ControlChanges(updates, common, 1 / reach), expected


def test_changes_of_several_clients(three):
    _, changes, expected = three
    assert len(changes) == 3
    for i in (2, 0, 1):
        assert torch.equal(changes[i].vector, expected[i].vector)


def test_the_sum_of_several_clients_changes_has_the_bits_of_one_after_another(three):
    _, changes, expected = three
    begun = torch.full((3,), 0.1, dtype=torch.float64)
    sums, fresh = begun.clone(), torch.full((3,), torch.nan, dtype=torch.float64)
    changes.add_to(sums, fresh=False)
    changes.add_to(fresh, fresh=True)
    for change in expected:
        begun += change.vector
    assert torch.equal(sums, begun)
    assert torch.equal(fresh, sum(change.vector.double() for change in expected))


def test_changes_that_leave_the_process_are_computed_before(three):
    _, changes, expected = three
    found = pickle.loads(pickle.dumps(changes))
    assert all(
        torch.equal(flat(one).vector, other.vector) for one, other in zip(found, expected, strict=True)
    )


def test_changes_are_those_of_the_updates_from_which_they_were_made(three):
    updates, changes, _ = three
    updates.vector.mul_(2)
    with pytest.raises(ValueError, match="updates were written to"):
        changes[0]
