import pytest
import torch
from toy import KEY

from shoal.aggregators.alignment import SIDE, alignment, folded, turns


def normal(*shape, name="a"):
    return torch.from_numpy(KEY.fold(name).numpy().normal(size=shape)).float()


def test_turns_are_the_polar_factors():
    given = normal(3, 5, 9)
    u, _, vt = torch.linalg.svd(given, full_matrices=False)
    torch.testing.assert_close(turns(given, 5), u @ vt, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(turns(given.mT.contiguous(), 5), (u @ vt).mT, rtol=1e-3, atol=1e-4)
    cut = turns(given, 2)  # two of five directions
    torch.testing.assert_close(cut, u[:, :, :2] @ vt[:, :2], rtol=1e-3, atol=1e-4)


def test_equal_opposite_and_absent():
    one = normal(6, 8)
    found = alignment(torch.stack([one, 7 * one, -one, 0 * one, 1e15 * one]), KEY)
    expected = torch.tensor([1.0, 1.0, -1.0, 0.0, 1.0]).double()
    torch.testing.assert_close(found[0], expected, rtol=1e-3, atol=1e-4)
    assert bool(found.isfinite().all())


def test_a_sketch_keeps_inner_products_in_the_mean():
    rows = normal(2, 1, 1000)
    rows[1] += rows[0]
    true = float((rows[0, 0] * rows[1, 0]).sum())
    drawn = [folded(rows, 50, KEY.fold(i)) for i in range(200)]
    assert drawn[0].shape == (2, 1, 50)
    found = torch.tensor([float((each[0, 0] * each[1, 0]).sum()) for each in drawn])
    assert float(found.mean()) == pytest.approx(true, rel=0.1)
    assert folded(rows, 1000, KEY) is rows


def test_large_matrices_that_share_weak_directions_are_seen_to_agree():
    """Each pulls hardest in a direction of its own; what they share is ten times weaker."""
    shared = 0.1 * normal(200, 300, name="shared")
    pulls = [20 * torch.outer(normal(200, name=f"u{i}"), normal(300, name=f"v{i}")) / 10 for i in range(8)]
    honest = torch.stack(
        [shared + pull + 0.1 * normal(200, 300, name=f"n{i}") for i, pull in enumerate(pulls)]
    )
    liar = -(shared + 20 * torch.outer(normal(200, name="u"), normal(300, name="v")) / 10)
    found = alignment(torch.cat([honest, liar[None]]), KEY)
    assert max(honest.shape[1:]) > SIDE
    among = found[:8, :8].fill_diagonal_(1)
    assert float(among.min()) > 0 > float(found[8, :8].max())
    rows = torch.cat([honest, liar[None]]).reshape(9, -1)
    whole = torch.nn.functional.cosine_similarity(rows[:1], rows[1:8])
    assert float(whole.abs().max()) < 0.05  # whole updates hardly say anything


def test_turns_of_large_matrices_with_few_and_with_many_directions():
    """Each by its own way, to the same result as by a decomposition in float64."""
    low = normal(3, 80, 10, name="l") @ normal(3, 10, 90, name="r")
    both = torch.cat([low[:2], normal(1, 80, 90), low[2:]])
    u, s, vt = torch.linalg.svd(both.double(), full_matrices=False)
    kept = (s > 1e-3 * s[:, :1]).double()
    expected = (u * kept[:, None]) @ vt
    torch.testing.assert_close(turns(both, 80).double(), expected, rtol=0, atol=2e-3)
    torch.testing.assert_close(turns(both.mT.contiguous(), 80).double(), expected.mT, rtol=0, atol=2e-3)


def test_updates_in_doubles_are_compared_as_those_in_floats():
    given = normal(4, 120, 110)
    torch.testing.assert_close(
        alignment(1e200 * given.double(), KEY), alignment(given, KEY), rtol=0, atol=1e-3
    )
