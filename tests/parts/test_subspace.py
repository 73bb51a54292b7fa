import itertools

import pytest
import torch
from toy import KEY

from shoal.core.errors import SpecError
from shoal.parts.subspace import Subspace, merge, merged, subspace


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


def samples(n, features=7, rank=7, name="x"):
    draw = KEY.fold(name).numpy()
    return torch.from_numpy(draw.normal(size=(n, rank)) @ draw.normal(size=(rank, features)))


def test_two_clients_by_hand():
    """Three samples (2, 0) and one (0, 3): X^T X is diag(12, 9)."""
    one = subspace(doubles([2.0, 0.0], [2.0, 0.0], [2.0, 0.0]), 1)
    two = subspace(doubles([0.0, 3.0]), 1)
    assert one.s.tolist() == pytest.approx([12**0.5])
    assert two.u.abs().tolist() == [[0.0], [1.0]]
    both = merge(one, two, 2)
    assert both.s.tolist() == pytest.approx([12**0.5, 3.0])
    assert both.second_moment.tolist() == [pytest.approx([12.0, 0.0]), pytest.approx([0.0, 9.0])]
    strongest = merge(one, two, 1)
    assert strongest.captured(doubles([2.0, 0.0], [0.0, 2.0])) == pytest.approx(0.5)
    late = merge(one, two, 2, forgetting=0.5)  # what was before counts a quarter: diag(3, 9)
    assert late.s.tolist() == pytest.approx([3.0, 3**0.5])


def test_a_merge_is_exact_where_the_ranks_suffice():
    parts = [samples(n, name=f"x{n}") for n in (3, 9, 20)]
    together = torch.cat(parts)
    found = merged([subspace(part, 7) for part in parts], 7)
    torch.testing.assert_close(found.second_moment, together.T @ together)
    torch.testing.assert_close(found.s, torch.linalg.svdvals(together))
    assert found.captured(together) == pytest.approx(1.0)


def test_low_ranks_suffice_for_samples_of_low_rank():
    shared = samples(30, rank=2)
    found = merged([subspace(part, 2) for part in shared.split([4, 9, 17])], 2)
    torch.testing.assert_close(found.second_moment, shared.T @ shared)


@pytest.mark.parametrize("rank", [7, 3])
def test_the_order_does_not_matter(rank):
    """Exactly with full ranks; where something is cut, by no more than what was cut."""
    parts = [samples(n, name=f"x{n}") for n in (3, 9, 20)]
    some = [subspace(part, 7) for part in parts]
    found = [merged(order, rank).second_moment for order in itertools.permutations(some)]
    tree = merge(merge(some[2], some[0], rank), some[1], rank).second_moment
    cut = float(torch.linalg.svdvals(torch.cat(parts))[rank:].square().sum()) if rank < 7 else 0.0
    for each in [*found, tree]:
        assert float((each - found[0]).norm()) <= 2 * cut + 1e-9


def test_little_and_nothing():
    nothing = subspace(torch.zeros(3, 4), 2)
    assert nothing.captured(torch.zeros(2, 4)) == 1.0
    one = subspace(samples(1), 5)
    assert one.u.shape == (7, 1)
    torch.testing.assert_close(merge(one, subspace(torch.zeros(2, 7), 2), 5).second_moment, one.second_moment)


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (lambda: subspace(samples(3), 0), "rank"),
        (lambda: merge(subspace(samples(3), 2), subspace(samples(3, 5), 2), 2), "7 and 5 features"),
        (lambda: merge(subspace(samples(3), 2), subspace(samples(3), 2), 2, 0.0), "forgetting"),
    ],
)
def test_what_cannot_be_merged_is_refused(cause, message):
    with pytest.raises(SpecError, match=message):
        cause()


def test_what_travels_is_a_rank_not_the_samples():
    found = subspace(samples(100), 2)
    assert isinstance(found, Subspace)
    assert found.u.numel() + found.s.numel() == 2 * (7 + 1)
