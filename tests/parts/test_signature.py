import math

import pytest
import torch

from shoal.core.errors import DeclinedError
from shoal.core.key import Key
from shoal.parts.signature import WIDEST, distances, mean_projector, products, signature, with_member

RNG = Key.from_seed(5).numpy()


def normal(*shape):
    return torch.from_numpy(RNG.normal(size=shape))


def orthonormal(rows, columns):
    return torch.linalg.qr(normal(rows, columns))[0]


@pytest.mark.parametrize("count", [3, 12, 40])
def test_a_signature_holds_the_left_singular_vectors(count):
    x = normal(count, 4, 5)
    found = signature(x, 3)
    wanted = torch.linalg.svd(x.reshape(count, -1).T, full_matrices=False)[0][:, :3]
    assert float(distances([found], [wanted])[0, 0]) < 1e-5
    assert torch.equal(found.abs().argmax(0), found.argmax(0))  # signs: the largest entry is positive


def test_repeated_and_reordered_samples_have_the_same_signature():
    x = normal(12, 30)
    twice = torch.cat([x, x])[torch.from_numpy(RNG.permutation(24))]
    assert torch.allclose(signature(x, 5), signature(twice, 5), atol=1e-6)


def test_distances_see_the_subspace_only():
    basis = orthonormal(20, 6)
    turned = basis[:, :3] @ orthonormal(3, 3)
    signs = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    assert float(distances([basis[:, :3]], [turned * signs])[0, 0]) < 1e-7
    apart = float(distances([basis[:, :3]], [basis[:, 3:]])[0, 0])
    assert apart == pytest.approx(math.sqrt(2 * 3))  # orthogonal subspaces


def test_distances_equal_those_of_the_projectors():
    members = [orthonormal(9, 2), orthonormal(9, 3), torch.zeros(9, 2, dtype=torch.float64)]
    projectors = [member @ member.T for member in members]
    for i, first in enumerate(projectors):
        for j, second in enumerate(projectors):
            assert float(distances(members, members)[i, j]) == pytest.approx(
                float((first - second).norm()), abs=1e-7
            )
            assert float(products(members, members)[i, j]) == pytest.approx(float((first * second).sum()))


def test_a_mean_projector_moves_with_its_members():
    members = [orthonormal(8, 2) for _ in range(4)]
    mean = mean_projector(members[:3])
    assert torch.allclose(mean @ mean.T, sum(m @ m.T for m in members[:3]) / 3)
    more = with_member(mean, 3, members[3])
    assert torch.allclose(more @ more.T, sum(m @ m.T for m in members) / 4)


def test_a_mean_projector_does_not_grow_for_ever():
    crowd = mean_projector([orthonormal(100, 5) for _ in range(40)])
    assert crowd.shape == (100, WIDEST)


def test_few_samples_leave_columns_of_zeros():
    found = signature(normal(2, 6), 4)
    assert found.shape == (6, 4)
    assert float(found[:, 2:].abs().max()) == 0
    assert torch.equal(signature(torch.zeros(3, 6), 4), torch.zeros(6, 4))


def test_nobody_has_a_signature_without_samples():
    with pytest.raises(DeclinedError, match="holds no samples"):
        signature(torch.zeros(0, 6), 4)
