import pytest
import torch

from shoal.core.flat import flat
from shoal.parts.layer_scores import SCORES, ranked, within_budget

BEFORE, AFTER = torch.tensor([3.0, 4.0]), torch.tensor([4.0, 3.0])


@pytest.mark.parametrize(
    ("score", "wanted"),
    [
        ("cos_over_dim", 24 / 25 / 2),
        ("cos", 24 / 25),
        ("rel_l2", -(2**0.5) / 5),
        ("l1", -1.0),
        ("emd", 0.0),  # the same values in another order
    ],
)
def test_scores_by_hand(score, wanted):
    assert SCORES[score](BEFORE, AFTER) == pytest.approx(wanted)


@pytest.mark.parametrize("score", ["cos", "rel_l2", "l1", "emd"])
def test_a_layer_that_did_not_change_comes_first(score):
    before = {"moved": torch.ones(4), "kept": torch.zeros(3), "turned": -torch.ones(2)}
    after = {"moved": torch.ones(4) * 2, "kept": torch.zeros(3), "turned": torch.ones(2)}
    names = ranked(score, before, after)
    assert names[0] == ("kept" if score != "cos" else "moved")  # a longer vector has the same direction
    assert names[-1] == "turned"


def test_activity_is_counted_alike_in_one_vector_and_layer_by_layer():
    torch.manual_seed(0)
    before = {name: torch.randn(size) for name, size in (("a", 70), ("b", 3), ("empty", 0), ("c", 40))}
    moved = {"a": 0.4e-3, "b": 0.6e-3, "empty": 0.0, "c": 0.5e-3}  # of numbers of either sign
    after = {name: value + moved[name] * torch.randn_like(value) for name, value in before.items()}
    one_by_one = ranked("activity", before, after)
    assert ranked("activity", flat(before), flat(after)) == one_by_one
    share = {n: int(((after[n] - before[n]).abs() > 0.0005).sum()) / max(len(before[n]), 1) for n in before}
    assert one_by_one == sorted(share, key=lambda name: share[name])


def test_the_literal_score_prefers_small_layers():
    before = {"large": torch.ones(100), "small": torch.ones(2)}
    after = {"large": torch.ones(100), "small": torch.tensor([1.0, 0.9])}
    assert ranked("cos_over_dim", before, after) == ["small", "large"]
    assert ranked("cos", before, after) == ["large", "small"]


def test_a_budget_takes_what_still_fits():
    sizes = {"a": 60, "b": 30, "c": 10}
    assert within_budget(["a", "b", "c"], sizes, 0.4) == ["b", "c"]
    assert within_budget(["c", "b", "a"], sizes, 0.4) == ["c", "b"]
    assert within_budget(["a", "b", "c"], sizes, 1.0) == ["a", "b", "c"]
